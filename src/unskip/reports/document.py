"""The JSON document of an audit (schema 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from unskip.audit import Audit, BlockReport

SCHEMA_VERSION = 1


def audit_document(audit: Audit, certificates: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The whole audit; ``certificates`` maps block names to the files written for them."""
    files = certificates or {}
    asked = {} if audit.tolerance is None else {"tolerance": audit.tolerance}
    return {
        "schema": SCHEMA_VERSION,
        "model": {"path": audit.model.path, "kind": audit.model.kind, **audit.model.description},
        **asked,
        "blocks": [
            _block(report, files.get(report.name)) | (_within(report) if asked else {})
            for report in audit
        ],
        "summary": audit.summary,
    }


def _within(report: BlockReport) -> dict[str, Any]:
    found = report.verdict.within
    return {"within": None if found is None else asdict(found)}


def _block(report: BlockReport, certificate: str | None) -> dict[str, Any]:
    verdict = report.verdict
    statement = verdict.certificate
    width = [None if math.isinf(x) else int(x) for x in verdict.width]
    return {
        "name": report.name,
        "places": report.places,
        "activation": statement.activation,
        "gated": statement.gated,
        "norm": statement.norm,
        "biases": list(report.biases),
        "d": statement.d,
        "m": statement.m,
        "answer": verdict.answer.value,
        "scope": verdict.scope.value,
        "rule": verdict.rule.value,
        "reference": verdict.reference,
        "reason": verdict.reason,
        "assumptions": str(verdict.assumptions),
        "defect": None if verdict.defect is None else verdict.defect.to_json(),
        "width": width,
        "subset": None if verdict.subset is None else list(verdict.subset),
        "certificate": certificate,
        "seconds": round(report.seconds, 4),
    }
