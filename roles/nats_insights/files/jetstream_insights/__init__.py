# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables, findings and forecasts from the telemetry of NATS JetStream fleets, by Spark. See docs/insights.md.

Rooms, each knowing only those before it: fields (how a column is read), silver (what the tables are), lake (files), jobs, cli.
Apart from them, messages (streams of NATS) and source (the data source `jetstream`) know nothing of the lake.
"""

from jetstream_insights import collection

# What snapshots hold is declared there, for whoever writes them and for whoever reads them.
collection.find()
