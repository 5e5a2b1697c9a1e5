from snakemake.utils import min_version

min_version("9.0")

# A second configfile would be merged into the default one key by key, and arms of two experiments would mix.
if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/environment.smk"
include: "workflow/rules/engine.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    plan,
    engine_python,
    engine_overlay,
    engine,
    model,
    environment,
    arm,
    analyse,
    report,
    figures,


rule all:
    default_target: True
    input:
        "report/findings.html",
        f"{RESULTS}/figures",
