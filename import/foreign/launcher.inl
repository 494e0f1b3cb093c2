// torchrun, deepspeed, mpirun and srun: what stands before the program's name. The number of ranks counts, all else is their own.
system("launchers", "the launcher's default"),
heading("torchrun, deepspeed, mpirun, srun"),
launcher("nproc_per_node = gpu, cpu, xpu, auto", "as many ranks as a machine has GPUs; import --ranks says how many in all"),
{"nproc_per_node, num_gpus, num_accelerators, npernode, ppn, ntasks_per_node, sbatch.ntasks_per_node, sbatch.gpus_per_node",
 kMapped, "parallel.data@ranks_per_node"},
{"nnodes, num_nodes, nodes, sbatch.nodes", kMapped, "parallel.data@nodes", {}, {}, "1"},
{"n, np, ntasks, sbatch.ntasks, include.ranks", kMapped, "parallel.data@ranks"},
{"python, swift", kMapped, "parallel.data@ranks", "1", "without a launcher it is one process", {}, kUnlessImplied},
{"torchrun", kMapped, "parallel.data@ranks_per_node", "1", "one process on each machine, where nproc_per_node is left out", {},
 kUnlessImplied},
differs("min_elastic_nodes, max_elastic_nodes, elastic_training", "elastic lists the layouts that trident supervise falls back on"),
differs("autotuning", "trident plan search compares layouts"),
differs("max_restarts, monitor_interval", "trident supervise restarts a run"),
launcher("bind_cores_to_rank, bind_core_list, numa_binding, bind_to, cpu_bind", "run.pin binds ranks to cores unless it is false"),
launcher("no_python, module, m", "this program is no Python"),
launcher("rdzv_endpoint, rdzv_backend, rdzv_id, rdzv_conf, master_addr, master_port, node_rank, standalone, local_addr, hostfile, "
 "H, include, i, exclude, e", "mpirun or srun knows the machines"),
launcher("start_method, role, run_path, log_dir, redirects, r, tee, t, local_ranks_filter, logs_specs, signals_to_handle, "
 "launcher, launcher_args, force_multi, no_local_rank, no_ssh, no_ssh_check, ssh_port, save_pid, enable_each_rank_log, "
 "venv_script, exclusive, p, partition, ntasks_per_core, ntasks_per_gpu, ntasks_per_socket", kStarts),
launcher("*", kStarts),  // mpirun and srun have many more
