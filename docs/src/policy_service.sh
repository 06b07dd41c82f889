# Let Cedar policies decide beside the labels. Runs on the project of the tutorial.

#: home quiet
cd shop

#: rules
mkdir policies/cedar
cat > policies/cedar/rules.cedar <<'END'
// Analysts read what their labels let them read ...
permit (principal in Group::"analysts", action == Action::"read", resource);

// ... but notes only where the task is an analysis.
forbid (principal, action, resource)
when { resource.trust == "retrieved_internal" }
unless { context has task_type && context.task_type == "analysis" };
END

#: settings
sed -e 's/^# kind = "builtin"/kind = "cedar"/' -e 's/^# path = "policies\/cedar"/path = "policies\/cedar"/' ctx.toml > new.toml
mv new.toml ctx.toml

#: items
ctx items --kind memory
# > No items that you can see
# >   ctx status  # what has been built
# >   ctx why-not ITEM  # why one is hidden

#: why-not
ctx why-not memory:memories/east-warehouse
# > not_found: no such item for this identity
# >   in:  item 'memory:memories/east-warehouse'
# >   fix: list what you can see: ctx items

#: broken tail=3
echo 'permit (principal' > policies/cedar/rules.cedar
ctx doctor
# > …
# > fail   policy service  the policy service gives no valid answer (invalid_policy), so nothing is shown to anybody ([policy_service])  see docs/how-to/use-a-policy-service.md for what each word means
# >
# > 14 ok, 0 warn, 1 fail
