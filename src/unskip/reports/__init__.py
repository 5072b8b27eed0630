"""Verdicts for people and for programs.

console.py   the table
document.py  the JSON document
html.py      the page, made of charts.py and markup.py; its template is in page/
words.py     verdicts and certificates in sentences
"""
