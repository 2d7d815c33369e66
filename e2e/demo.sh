#!/bin/sh
# The demo: one scenario in the simulator, then on this machine's kernel, and one page with both reports.
set -eu
cd "$(dirname "$0")/.."
scenario=scenarios/leave-coverage.toml
strategies=kernel,kernel-tuned,threshold,adaptive
out=runs/demo

say() { printf '\n\033[1m== %s\033[0m\n' "$1"; }

# Writes the page; the argument says what became of the drive. Without a drive there is no second report.
page() {
    cat >"$out/report.html" <<HTML
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Out of roadside coverage · Crosslane</title>
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif }
body { margin: 1rem }
iframe { width: 100%; height: 85vh; border: 1px solid gray }
</style>
<h1>Out of roadside coverage</h1>
<p>$1 <a href="#simulated">In the simulator</a> · <a href="#driven">on this machine's kernel</a></p>
<h2 id="simulated">In the simulator</h2>
<iframe src="simulated/report.html" title="Report of the simulated drives"></iframe>
<h2 id="driven">On this machine's kernel</h2>
$([ ! -e "$out/driven/report.html" ] || echo '<iframe src="driven/report.html" title="Report of the drives on the kernel"></iframe>')
</html>
HTML
}

rm -rf "$out"
say "simulating $scenario (seconds)"
target/release/crosslane simulate "$scenario" --strategy "$strategies" --seed 1..5 --out "$out/simulated"
.venv/bin/crosslane-lab report "$out/simulated" >/dev/null
page "The drive on the kernel has not ended yet."
printf '\n%s\n%s\n' "The first figures are in $PWD/$out/simulated/report.html" \
    "The drive on a map: target/release/crosslane view $out/simulated"

say "driving the same on this machine's kernel: four drives of 40 s; on a busy machine up to three attempts each"
status=0
target/release/crosslane drive "$scenario" --strategy "$strategies" --seed 1 --out "$out/driven" || status=$?
# Interrupted by the user.
[ "$status" -lt 128 ] || exit "$status"
invalid=
if [ -e "$out/driven/summary.json" ] && .venv/bin/crosslane-lab report "$out/driven" >/dev/null; then
    invalid=$(grep -c '"valid": false' "$out/driven/summary.json" || true)
fi
case $invalid in
    '') verdict="There was no drive on this machine's kernel; the message above says why. The simulated drives need no privileges." ;;
    0) verdict="All drives on the kernel are valid." ;;
    *) verdict="$invalid of 4 drives on the kernel are invalid: this machine was too busy for the emulator. \
The report says which and why; the simulated drives do not depend on the machine's load." ;;
esac
[ "$status" = 0 ] || [ "$invalid" != 0 ] || verdict="Not every drive on this machine's kernel ended; the message above says why."
page "$verdict"
printf '\n%s\n%s\n' "$verdict" "The report of both is in $PWD/$out/report.html"
exit "$status"
