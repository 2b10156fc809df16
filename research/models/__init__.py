"""Are the criteria about models right, and what can an audit of a few seeds show?

The answers are in docs/results/calibration.md. `cells`: which models are trained; `training`: what
is kept of each; `transfer`, `audits` and `validity`: what these come to.
"""
