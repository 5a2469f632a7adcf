"""How programs reach a Tallymark: for now the HTTP transport the commands use; the SDK is built on the same seam."""
