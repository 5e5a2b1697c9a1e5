"""The figures of the report, one module per question that a reader asks."""
