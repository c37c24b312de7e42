# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables, findings and forecasts from the telemetry of NATS JetStream fleets, by Spark. See docs/insights.md.

Each module uses only those listed before it: fields (reads a column), silver (defines the tables), lake (files), jobs, cli.
messages (streams of NATS) and source (the data source `jetstream`) are independent of the lake.
"""

from jetstream_insights import collection

# The collection declares the contents of snapshots, for the writers and for the readers.
collection.find()
