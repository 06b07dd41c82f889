"""Policies as files, looked at: what `ctx policy` calls."""

from ctx_pipeline.policy.lint import lint_policy
from ctx_pipeline.policy.review import diff_policies, show_policy

__all__ = ["diff_policies", "lint_policy", "show_policy"]
