from ctx_pipeline import build

report = build("shop", progress=False)

print(report.items, "live items,", report.embedded, "embedded")
for error in report.errors:
    print(error.path, error.line, error.code, error.message)
