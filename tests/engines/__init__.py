"""Tests of the engines, one file per engine."""
