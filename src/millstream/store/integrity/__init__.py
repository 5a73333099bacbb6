"""Bytes that are checked: digests of files, the ledger's own seal, what is set aside."""
