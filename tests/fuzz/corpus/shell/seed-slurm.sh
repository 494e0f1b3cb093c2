export L="accelerate launch --config_file z.yaml" C='x.py --a "b c"'
for i in 1 2; do A=$(date); done
f() { case $1 in a|b) x;; *) y;; esac; }
cat <<-EOF > d.json
	{"a": 'b'}
	EOF
cd d && NGPU=4 srun -N 2 bash -c "$L $C" || { exit 1; }; eval "B=$N"
