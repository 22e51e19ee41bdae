"""What all single-agent envs share."""

from __future__ import annotations

TEAM = "agent"
"""The team, and its one agent, of every single-agent env."""
