"""Tests of the files for operators: units, containers, and the wheel."""
