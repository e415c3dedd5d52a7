"""Flags and printing only: every command calls one function of a room below."""
