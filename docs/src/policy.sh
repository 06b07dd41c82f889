# Write a policy, check it, and see what it changes. Runs on the project of the tutorial.

#: home quiet
cd shop

#: write
cat > policies/team.toml <<'END'
name = "team"
version = "1.0.0"

[sources.memories]
max_budget = 0.05          # notes never take more than a twentieth of the window

[[rules]]
name = "careful query"
when = { phase = ["query", "analyse"], risk = "high" }
set = { min_relevence = 0.5, required_types = ["metric"] }
END

#: lint
ctx policy lint policies/team.toml
# > Findings
# >   error policies/team.toml:10 unknown_key: unknown key 'policy.rules.0.set.min_relevence'
# >     fix: did you mean 'min_relevance'?
# >
# > Policy policies/team.toml: 1 error, 0 warnings

#: mend
sed 's/min_relevence/min_relevance/' policies/team.toml > team.toml && mv team.toml policies/team.toml
ctx policy lint policies/team.toml
# > Policy policies/team.toml (team@1.0.0+5ae539b1): 0 errors, 0 warnings

#: settings
sed -e 's/^# profile = "data"/profile = "data"/' -e 's/^# path = "policies\/context.toml"/path = "policies\/team.toml"/' ctx.toml > new.toml
mv new.toml ctx.toml

#: show head=5 tail=13
ctx policy show --phase query --risk high
# > Policy team@1.0.0+db5fbd4f
# > case: phase query, risk high
# > rules: query, high risk, careful query
# >
# > key                           value                                                                                                                   origin
# > …
# > min_relevance                 0.5                                                                                                                     rule 'careful query' (policies/team.toml:7)
# > min_value                     0.8                                                                                                                     default
# > trust_floor                   tool_untrusted                                                                                                          default
# > exclude_stale                 true                                                                                                                    rule 'high risk' (profile data:44)
# > max_observation_tokens        2000                                                                                                                    default
# > required_types                metric                                                                                                                  rule 'careful query' (policies/team.toml:7)
# > order                         domain, state, observations, evidence, history                                                                          profile data:5
# > hard_gates                    required_context_present, sensitive_scope_ok, token_budget_ok, authority_order_valid, stale_items, conflicting_sources  rule 'high risk' (profile data:44)
# > phases                        default, discover, explore, decide, plan, understand, query, build, edit, analyse, verify, ship                         default
# > roles                         none                                                                                                                    default
# > sources.documents.max_budget  0.15                                                                                                                    profile data:21
# > sources.memories.max_budget   0.05                                                                                                                    policies/team.toml:5
# > sources.web.max_budget        0.05                                                                                                                    profile data:27

#: diff
ctx policy diff data current
# > From data@1.0.0+b36d706d to team@1.0.0+db5fbd4f
# >
# > phase query, risk high
# > key            before  after
# > min_relevance  0.4     0.5
# >
# > phase analyse, risk high
# > key            before  after
# > min_relevance  0.4     0.5
