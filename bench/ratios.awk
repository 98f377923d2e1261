# Turns benchstat's CSV of times into tables of how many times as long each column takes as the first, with the interval
# that the two times' intervals allow. Below 64 KiB, and below 0.1 ms without a size, it adds the nanoseconds that the first takes more.
# For a row impl=probe it adds what share of its ratio the row impl=fuel of the same work has, which comes before.
BEGIN { FS = "," }

/^pkg: / { printf "\n%s\n\n", $0; next }

/^,sec\/op/ {
	if (!(4 in name)) next
	printf "| work |"
	for (i = 4; i in name; i += 4) printf " %s / %s |", name[i], name[2]
	printf "\n|---|"
	for (i = 4; i in name; i += 4) printf "---|"
	print ""
	next
}

/^,/ {
	split("", name)
	for (i = 2; i <= NF; i++) if ($i != "") name[i] = $i
	next
}

/^geomean/ || $2 == "" || NF < 3 || !(4 in name) { next }

{
	printf "| %s |", work($1)
	for (i = 4; i in name; i += 4) {
		ratio = $i == "" ? 0 : $i / $2
		printf ratio ? " %s |" : " |", cell($i, $(i + 1), $2, $3)
	}
	print ""
	same = $1
	if (sub("impl=fuel", "impl=probe", same)) gain[same] = ratio
	else if (gain[$1] && ratio) printf "| of the probe's gain | %.2f |\n", gain[$1] / ratio
}

# cell is the ratio of two times in seconds, whose intervals are given in percent.
function cell(t, ci, base, baseCI,    text, p, q) {
	p = percent(ci)
	q = percent(baseCI)
	text = sprintf("%.2f", t / base)
	if (p >= 0 && q >= 0) text = text sprintf(" (%.2f–%.2f)", t * (1 - p) / (base * (1 + q)), q < 1 ? t * (1 + p) / (base * (1 - q)) : 9999)
	if (bytes < 65536 && base < 1e-4) text = text sprintf(", %+.1f ns", (base - t) * 1e9)
	return text
}

# percent is a fraction, or below zero where benchstat had too few runs.
function percent(ci) { return ci ~ /%$/ ? ci / 100 : -1 }

# work is the name without GOMAXPROCS and with its size in words; it sets bytes.
function work(s,    unit) {
	sub("-[0-9]+$", "", s)
	bytes = 0
	if (match(s, "size=[0-9]+(/|$)")) {
		bytes = substr(s, RSTART + 5) + 0
		unit = bytes >= 1048576 ? bytes / 1048576 " MiB" : bytes >= 1024 ? bytes / 1024 " KiB" : bytes " B"
		sub("size=[0-9]+", unit, s)
	}
	gsub("/", ", ", s)
	return s
}
