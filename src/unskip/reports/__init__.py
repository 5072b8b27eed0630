"""Verdicts for people and for programs.

console.py   the table
document.py  the JSON document
"""
