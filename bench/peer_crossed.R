# One fit of lme4 for bench/crossed_peers.py: FILE.csv, gaussian|logistic, nAGQ.
given <- commandArgs(TRUE)
suppressMessages({library(lme4); library(data.table)})
rows <- fread(given[1])
rows[, c("user", "item") := .(factor(user), factor(item))]
formula <- y ~ x + (1 | user) + (1 | item)
begun <- proc.time()[["elapsed"]]
if (given[2] == "gaussian") {
  fit <- lmer(formula, rows, control = lmerControl(calc.derivs = FALSE))
} else {
  control <- glmerControl(calc.derivs = FALSE)
  fit <- glmer(formula, rows, family = binomial, nAGQ = as.integer(given[3]), control = control)
}
seconds <- proc.time()[["elapsed"]] - begun
scale <- as.data.frame(VarCorr(fit))
scale <- setNames(scale$sdcor, ifelse(scale$grp == "Residual", "sigma", sprintf("tau[%s]", scale$grp)))
beta <- setNames(fixef(fit), c("beta[Intercept]", "beta[x]"))
found <- c(beta, scale)
cat(sprintf(
  '{"seconds": %g, "version": "lme4 %s", "found": {%s}}\n', seconds, packageVersion("lme4"),
  paste(sprintf('"%s": %.6g', names(found), found), collapse = ", ")
))
