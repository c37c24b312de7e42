# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report: report.html, report.json, report.md and its tables as CSV.

Rooms: content (which rows, from the lake), page (HTML), plain (Markdown, CSV). Only content.py imports Spark.
"""
