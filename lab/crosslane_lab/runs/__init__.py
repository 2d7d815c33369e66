"""Run folders as `crosslane drive` and `crosslane simulate` write them."""
