# Read by tests of scripts that want a card: $place, a folder that goes when the test ends, with a card and compilers in $place/bin.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/bin" "$place/programs"

# stand_in NAME <<TEXT: a program.
stand_in() { cat >"$place/$1"; chmod +x "$place/$1"; }
fail() { echo "$1"; cat "$place/out"; cat "$place/report.md" 2>/dev/null; exit 1; }

stand_in bin/nvidia-smi <<'SH'
#!/bin/sh
if [ "${FAKE_CARD:-yes}" = no ]; then echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"; exit 9; fi
echo "NVIDIA H100 80GB HBM3, 9.0, 580.159.04"
SH
# Asked whether a header can be included.
stand_in bin/g++ <<'SH'
#!/bin/sh
read -r line
case $line in *"<${FAKE_MISSING:-nothing}>"*) exit 1 ;; esac
SH
printf '#!/bin/sh\n' | stand_in bin/nvcc
