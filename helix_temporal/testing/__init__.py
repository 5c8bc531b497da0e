"""What the tests of this package use, for the tests of others."""
