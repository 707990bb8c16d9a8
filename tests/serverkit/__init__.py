"""Helpers of the receiver's, the API's and the packaging tests."""
