class CompilationError(Exception):
    """Never raised here."""
