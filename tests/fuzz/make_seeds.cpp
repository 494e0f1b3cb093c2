// make_fuzz_seeds FOLDER: writes FOLDER/TARGET/seed-*, what the fuzzer of a target begins with. The product's writers and the tests'
// make them; where a format has a new version, the old seeds stay beside the new ones (other names), for they must be read forever.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "checkpoint/format/box_file.h"
#include "checkpoint/format/hf_index.h"
#include "checkpoint/format/manifest.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "data/dataset_files.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer/piece_scanner.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/compress.h"
#include "tests/data/token_files.h"
#include "tests/fuzz/byte_tokens.h"
#include "tests/fuzz/recorded_pair.h"
#include "train/config/stored_config.h"
#include "train/config/train_config.h"
#include "train/launch/failure_file.h"

namespace trident::fuzz {
namespace {

class Seeds {
 public:
  explicit Seeds(std::string folder) : folder_(std::move(folder)) {}
  void add(std::string_view target, std::string_view name, std::string_view content) const {
    const std::string path = fmt::format("{}/{}/seed-{}", folder_, target, name);
    create_folder_of(path);
    write_file(path, content);
  }
  std::string scratch(std::string_view name) const { return fmt::format("{}/scratch/{}", folder_, name); }

 private:
  std::string folder_;
};

constexpr std::string_view kSmallest = R"({"run": {"dir": "r", "seed": 1, "steps": 10}, "model": {"preset": "llama-1m"}, // small
 "parallel": "2DP x 2PP x 2TP", "batch": {"global": 8, "sequence": 64}, "optimizer": {"lr": 1e-3}, "data": {"train": "p"}})";

void add_configurations(const Seeds& seeds) {
  constexpr std::string_view kKeys = R"({"run": {"dir": "r", "seed": 1, "steps": 10, "threads_per_rank": 2}, "model": {"model_type": "gpt2",
 "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512}, "parallel": {"data": "auto", "zero": "zero3", "grad_sync": {"every": 2}},
 "batch": {"global": 8, "sequence": 64}, "optimizer": {"lr": 1e-3}, "data": {"train": [{"path": "a", "weight": 0.5}, {"path": "b"}],
 "split": "99,1"}, "checkpoint": {"every": 5, "allow": ["optimizer.lr"], "staging": 12.5}, "log": {"trace_steps": [2, 3]}})";
  seeds.add("train_config", "smallest.json", kSmallest);
  seeds.add("train_config", "keys.json", kKeys);
  seeds.add("train_config", "resolved.json", to_json_text(to_json(parse_train_config(kSmallest, "x")), 1));
  seeds.add("json", "kinds.json", R"({"a": [1, -2.5e3, true, false, null, "\u00e4\n\"\\ \ud83d\ude00"], "": {}, "b": [[], [{}]]})");
  seeds.add("json", "comments.json", "// one\n{\"a\" /* two */: 9223372036854775807, \"b\": 18446744073709551615}\n");
  seeds.add("hf_config", "gpt2.json",
            R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":64,"n_layer":2,"n_head":4,"n_positions":128,)"
            R"("vocab_size":512,"layer_norm_epsilon":1e-05,"embd_pdrop":0.1,"resid_pdrop":0.1,"attn_pdrop":0.0})");
  seeds.add("hf_config", "llama3.json",
            R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
            R"("intermediate_size":128,"vocab_size":512,"max_position_embeddings":256,"rms_norm_eps":1e-05,"rope_theta":500000.0,)"
            R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
            R"("original_max_position_embeddings":64},"tie_word_embeddings":true,"torch_dtype":"bfloat16"})");
  seeds.add("hf_config", "qwen3.json",
            R"({"model_type":"qwen3","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
            R"("head_dim":32,"intermediate_size":128,"vocab_size":512,"max_position_embeddings":256,"sliding_window":null,)"
            R"("rope_parameters":{"rope_theta":10000.0,"rope_type":"yarn","factor":4.0},"dtype":"float32"})");
  seeds.add("peft_config", "list.json",
            R"({"peft_type":"LORA","task_type":"CAUSAL_LM","r":4,"lora_alpha":8,"target_modules":["q_proj","down_proj"],)"
            R"("bias":"none","layers_to_transform":[1],"layers_pattern":"layers","modules_to_save":["lm_head"],)"
            R"("exclude_modules":null,"use_dora":true,"init_lora_weights":true,"loftq_config":{},"lora_bias":false})");
  seeds.add("peft_config", "patterns.json",
            R"x({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":".*\\.(q_proj|k_proj|mlp\\.[a-z]+_proj)",)x"
            R"x("use_rslora":true,"rank_pattern":{"q_proj":2,"^model.layers.1.self_attn.k_proj":5},"bias":"lora_only",)x"
            R"x("alpha_pattern":{"layers.\\d.mlp":20},"exclude_modules":"(?!.*layers.0).*down_proj"})x");
}

// Adds seeds of files that users and runs write beside configurations.
void add_lines(const Seeds& seeds) {
  const std::string zero(1, '\0');
  TrainConfig config = parse_train_config(kSmallest, "x");
  config.run.id = "8f21";
  seeds.add("stored_config", "run.json", to_json_text(to_stored(config), 1));
  seeds.add("stored_config", "old.json",
            R"({"run":{"dir":"r","steps":4,"gone":1},"model":{"preset":"llama-1m"},"batch":{"global":8,"sequence":64},)"
            R"("optimizer":{"lr":1e-3},"lr_schedule":{"warmup_steps":10,"decay_steps":4},"data":{"train":"p"},)"
            R"("checkpoint":{"every":"sometimes"},"resolved":{"run_id":"a","decay_length":20}})");
  seeds.add("foreign_word", "flag", "--tensor-model-parallel-size" + zero + "4");
  seeds.add("foreign_word", "value", "--optimizer=lion");
  seeds.add("foreign_word", "key", "--train_micro_batch_size_per_gpu=2");
  seeds.add("hostfile", "two.txt", "# nodes\nn1 slots=8\nn2.cluster slots=4 max_slots=8 # half\nn1 slots=2\n");
  seeds.add("hostfile", "address.txt", "10.0.0.1 slots=1\r\nfe80::1 slots=65000\n");
  seeds.add("study", "gpus.json", R"({"study": "ZeRO", "config": "a.json", "set": {"parallel.zero": "zero3"},
 "vary": ["gpus=8..64|96"], "scaling": "weak", "cluster": "h100_sxm_ndr"})");
  seeds.add("study", "arms.json", R"({"study": "two", "config": "b.json", "arms": [{"name": "1f1b", "set": {}}, {"name": "i", "set":
 {"parallel.virtual_stages": 2}}], "vary": ["micro=1|2,seq=512..2048"], "gpus": 16})");
  seeds.add("case_rows", "array.json",
            R"([{"id": "a", "kind": "memory", "config": {"layers": 2}, "expected": 1}, {"id": 7}, null])");
  seeds.add("case_rows", "lines.jsonl", "{\"id\": \"a\"}\n\n{\"id\": \"b\", \"kind\": \"x\"}\n{\n");
  seeds.add("case_rows", "cases.json", R"({"note": "n", "cases": [{"id": "a"}]})");
  seeds.add("json_lines", "two.jsonl", "{\"text\": \"one \\u00e4\", \"n\": [1, {}]}\r\n\n{\"id\": 7, \"text\": \"\\ud83d\"}\n");
  seeds.add("json_lines", "among-bad.jsonl", "{\"text\": 7}\n[]\n{\"text\": \"x\"}\n{\"text\"");
  seeds.add("json_lines", "last.jsonl", "{\"text\": \"x\", \"a\": null}");
  seeds.add("json_lines", "ids.jsonl", "{\"labels\": [1, 2], \"text\": [1, 2]}");
  seeds.add("choices", "texts.jsonl", R"({"context": "a b ", "choices": ["c", "dd"], "answer": 1, "id": 3})" "\n\n");
  seeds.add("choices", "ids.jsonl", R"({"context": [1, 256], "choices": [[2], [3, 299]], "answer": 0})" "\n");
  seeds.add("prompts", "mixed.jsonl", "\"a text\"\n{\"prompt\": \"b\"}\n\n{\"ids\": [1, 2147483647]}\n");
  seeds.add("prompts", "one.jsonl", "{\"ids\": []}");
  seeds.add("added_tokens", "decoder",
            R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"256": {"content": "<|endoftext|>"},)"
            R"("257": {"content": "<x>", "lstrip": true, "rstrip": true},)"
            R"("258": {"content": "yy", "single_word": true, "normalized": true}}})" +
                zero + zero + "a <x> y yy");
  constexpr std::string_view kTurns = R"([{"role": "user", "content": " u"}, {"role": "assistant", "content": "a\n", "n": 1.5}])";
  seeds.add("chat_template", "plain",
            "{% for m in messages if m.role != 'system' -%}\n [{{ m['role'] }}]{{ m.content | trim }}.{% else %}-{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}" + zero + std::string(kTurns));
  seeds.add("chat_template", "many",
            "{# c -#} {{- bos_token ~ [1, 'a', {'k': none}] | tojson(indent=1) }}{% set n = namespace(x=(1, 2.5)[::-1]) %}"
            "{% macro m(a, b=2) %}<{{ a.split('a')[0:1] | join('-') }}{{ b // 2 * 3 % 4 }}>{% endmacro %}"
            "{% for k, v in messages[0].items() %}{% set n.x = loop.index0 if not loop.last else n.x %}{{ m(v, b=loop.index) }}"
            "{% if v is string and 'u' in v or k == 'n' %}{% continue %}{% elif tools %}{% break %}{% endif %}{% endfor %}"
            "{% filter upper | replace('A', 'b') %}{% generation %}{{ messages[1:] | map(attribute='content') | list }}"
            "{% endgeneration %}"
            "{% endfilter %}{% set t %}{{ range(3) | select('odd') | list }}{% endset %}{{ t | default('d') | length }}" + zero +
                std::string(kTurns));
  seeds.add("added_tokens", "plain", zero + R"({"[PAD]": 257, "[P": 258})" + zero + "a[PAD] [P [PAD<|endoftext|>");
}

void add_scripts(const Seeds& seeds) {
  seeds.add("shell", "megatron.sh",
            "#!/bin/bash\nGPUS=8\nN=$((GPUS * 2)); SAVE=${1:-ckpt} DATA=$2\nD=(\n  --nproc_per_node $GPUS # of each\n)\n"
            "M=(--num-layers 12 \"--split '99,1,0'\")\nif [[ \"$T\" == \"fp8\" ]] || [ -n \"$K\" ]; then\n"
            "M+=(--fp8); else M+=(--bf16); fi\n"
            "torchrun ${D[@]} --node_rank $RANK pretrain_gpt.py \\\n  \"${M[@]}\" --save \"$SAVE\" --data-path $DATA \\\n"
            "  --lr 1e-4 2>&1 | tee log\n");
  seeds.add("shell", "slurm.sh",
            "export L=\"accelerate launch --config_file z.yaml\" C='x.py --a \"b c\"'\nfor i in 1 2; do A=$(date); done\n"
            "f() { case $1 in a|b) x;; *) y;; esac; }\ncat <<-EOF > d.json\n\t{\"a\": 'b'}\n\tEOF\n"
            "cd d && NGPU=4 srun -N 2 bash -c \"$L $C\" || { exit 1; }; eval \"B=$N\"\n");
}

void add_failures(const Seeds& seeds) {
  create_folder(seeds.scratch("run"));
  for (const int rank : {0, 7}) {
    write_failure(seeds.scratch("run"), {.rank = rank, .host = "n1", .cause = "was killed or crashed", .exit_code = 76, .step = 12,
                                         .message = "error: rank 7 (host n1, pid 3) was killed or crashed in training, step 12",
                                         .start = "0123456789abcdef"});
    seeds.add("failure_json", fmt::format("rank{}.json", rank), failure_text(seeds.scratch("run")));
  }
}

// The JSON of a file's table, without its length and the spaces behind it.
std::string json_of(const std::string& text) {
  const std::size_t end = text.find_last_not_of(' ');
  return text.substr(8, end - 7);
}

void add_checkpoints(const Seeds& seeds) {
  for (const int cut : {0, 1}) {
    Manifest manifest = test::small_manifest(cut == 0 ? DType::kBF16 : DType::kF32);
    manifest.state.blend_taken = manifest.state.blend_now = {3, 4};
    manifest.state.best_valid_loss = 2.5;
    manifest.generation = "8f21";
    manifest.written_unix = 1'800'000'000;
    manifest.config = JsonValue::Object{{"run", JsonValue::Object{{"seed", 1}}}};
    const std::string folder = seeds.scratch(fmt::format("step-{}", cut));
    manifest = test::write_checkpoint(folder, manifest, test::small_files(manifest, cut));
    seeds.add("manifest", fmt::format("cut{}.json", cut), to_text(manifest));
    for (std::size_t i = 0; i < 2; ++i) {
      const ManifestFile& file = manifest.files[i];
      const std::string text = read_file(folder + "/" + file.path).substr(0, static_cast<std::size_t>(file.table_bytes));
      seeds.add("box_table", fmt::format("cut{}-{}.json", cut, i), json_of(text));
    }
  }
  SafetensorsHeader header{{{"format", "pt"}}, {{"a", DType::kF32, {2}, 0, 8}, {"b", DType::kBF16, {1, 3}, 8, 14}}};
  seeds.add("safetensors_header", "two.json", json_of(to_text(header)));
  header = {{}, {{"scalar", DType::kI64, {}, 0, 8}, {"empty", DType::kU8, {0, 5}, 8, 8}, {"half", DType::kF16, {2, 2}, 8, 16}}};
  seeds.add("safetensors_header", "three.json", json_of(to_text(header)));
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  seeds.add("hf_index", "two.json", to_text(HfIndex{{{"a.weight", first}, {"b.weight", second}}, 14, 5}));
  seeds.add("hf_index", "one.json", to_text(HfIndex{{{"a", "model.safetensors"}}, std::nullopt, std::nullopt}));
}

void add_datasets(const Seeds& seeds) {
  const std::string prefix = seeds.scratch("tokens");
  for (const std::int64_t vocab : {500, 70000}) {
    write_dataset(prefix, counting_documents(5, 20), vocab);
    const std::int64_t size = std::ssize(read_file(bin_path(prefix)));
    const std::string bytes{static_cast<char>(size & 0xFF), static_cast<char>(size >> 8)};
    seeds.add("token_index", fmt::format("vocab{}.idx", vocab), bytes + read_file(idx_path(prefix)));
  }
  for (const int tokens : {0, 3, 8, 21}) {
    AtomicFile file(mask_path(prefix));
    LossMaskWriter mask(file, tokens);
    for (int t = 0; t < tokens; ++t) mask.append(t % 3 != 1);
    mask.finish();
    file.commit();
    seeds.add("loss_mask", fmt::format("of{}.mask", tokens), static_cast<char>(tokens) + read_file(mask_path(prefix)));
  }
  write_recorded_pair(prefix);  // the files of the target
  DatasetRecord record{.origin = {}, .counts = {.documents = 2, .sequences = 2, .tokens = 3},
                       .bin = sample_file(bin_path(prefix)), .idx = sample_file(idx_path(prefix))};
  seeds.add("dataset_record", "merged.json", to_json_text(to_json(record), 2));
  record.origin.tokenizer = {"gpt2", "0123456789abcdef", 50257};
  record.origin.add({"a.txt", 7});
  record.origin.add({"b.jsonl.zst", 99});
  seeds.add("dataset_record", "prepared.json", to_json_text(to_json(record), 2));
}

void add_tokenizers(const Seeds& seeds) {
  const std::string zero(1, '\0');
  const std::string bytes = bytes_as_tokens();
  constexpr std::string_view kMore = R"(,"th":257,"the":258,"Ġthe":259)";
  constexpr std::string_view kMerges = "#version: 0.2\nt h\nth e\nĠ the\n";
  seeds.add("vocab_and_merges", "added", std::string(kMore) + zero + std::string(kMerges) + zero + "the other 123 don't<|endoftext|>\n");
  seeds.add("vocab_and_merges", "whole", "{" + bytes + std::string(kMore) + "}" + zero + std::string(kMerges) + zero + "the \xC3\xA4");
  constexpr std::string_view kHead =
      R"({"version":"1.0","added_tokens":[{"id":256,"content":"<|endoftext|>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":true,"special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
      R"("post_processor":null,"model":{"type":"BPE","dropout":null,"merges":)";
  for (const std::string_view merges : {R"(["t h","th e"])", R"([["t","h"],["th","e"]])"})
    seeds.add("tokenizer_json", merges.starts_with("[[") ? "pairs.json" : "lines.json",
              std::string(kHead) + std::string(merges) + ",\"vocab\":{" + bytes + R"(,"th":257,"the":258)" + "}}}");
  // Components of all kinds, over characters.
  seeds.add(
      "tokenizer_json", "chain.json",
      R"({"added_tokens":[{"id":7,"content":"<s>","special":true},{"id":8,"content":"yy","lstrip":true,"normalized":true}],)"
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"},{"type":"Strip","strip_left":true,)"
      R"("strip_right":false},{"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"_"},)"
      R"({"type":"Replace","pattern":{"Regex":"x+"},"content":"x"}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
      R"({"type":"Digits","individual_digits":true},{"type":"Punctuation","behavior":"MergedWithNext"},)"
      R"({"type":"Split","pattern":{"String":"t."},"behavior":"Contiguous","invert":true},{"type":"WhitespaceSplit"}]},)"
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":)"
      R"({"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}},)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)"
      R"("model":{"type":"BPE","unk_token":"u","fuse_unk":true,"byte_fallback":true,"ignore_merges":true,)"
      R"("vocab":{"u":0,"_":1,"a":2,"t":3,"e":4,"te":5,"<0x78>":6},"merges":["t e"]}})");
}

void add_ranks(const Seeds& seeds) {
  const std::string zero(1, '\0');
  const std::string th = in_base64("th"), he = in_base64("he");
  seeds.add("rank_file", "two",
            th + " 256\n" + he + " 257\r\n" + zero + R"({"<|end|>": 300, "<|x|>": 301})" + zero + "the other 123 don't");
  seeds.add("rank_file", "bare", th + " 300" + zero + zero + "the <|end|>");
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab += fmt::format("{{\"rank\":{},\"token_bytes\":\"{}\",\"token_str\":null}},", byte, in_base64({&c, 1}));
  }
  vocab += fmt::format("{{\"rank\":256,\"token_bytes\":\"{}\",\"token_str\":\"th\"}}", th);
  for (const std::string_view specials :
       {"", R"(,"special_tokens":[{"rank":0,"token_str":"<unk>","is_control":true},{"rank":1,"token_str":"<s>"}])"})
    seeds.add(
        "tekken_json", specials.empty() ? "old.json" : "named.json",
        R"({"config":{"pattern":"\\p{L}+|[^\\p{L}]","num_vocab_tokens":257,"default_vocab_size":260,)"
        R"("default_num_special_tokens":3,"version":"v3"},"vocab":[)" +
            vocab + "]" + std::string(specials) + "}");
}

void add_patterns(const Seeds& seeds) {
  const std::string zero(1, '\0');
  constexpr std::string_view kText =
      "It's HTML's word, 1234 \u00e9\u0301 \u4e2d\u6587\u3002ABc\u3042\n\n  x/y'LL '\u017f \u01c5 \u2167\t \r\n ";
  for (const KnownPattern& known : known_patterns())
    seeds.add("pattern", known.name, std::string(known.text) + zero + std::string(kText));
  seeds.add("pattern", "classes", R"([^a-c\x41\x{e9}[\d&&[^5]]\p{^Han}]+?|[\-\]]{2,3}|\W)" + zero + "ab5--]\xE4\xB8\xAD");
  seeds.add("pattern", "groups",
            R"((?i)it|(?>a|ab)c|(?<=x|\r\n)y|(?<!y)z{1,2}+|(?:(?:a|b){1,2}c)*d|\A\S|$)" + zero + "ITabcxy\nzz aacbcd");
  seeds.add("pieces", "text", kText);
  seeds.add("pieces", "marks", "\u0301 \u0301A\u0301'\u0301\u200d\u0378a\u0378 \u3042A\u3042B\u3042c\n \n !\n/ ...a");
  seeds.add("normal_forms", "marks", "a\u0323\u0307\u0301 \u1e9b\u0323 \u0344 \u0958 \uac01\u1100\u1161\u11a8");
  seeds.add("normal_forms", "letters", "\u212b\u2126\ufb01\u0130\u3392 \u00bd \ufdfa \U0001d54f \uf900 \u32ff");
}

void add_compressed(const Seeds& seeds) {
  const std::string text = "a text, a text, and another text\n", other = "{\"text\": \"more\"}\n";
  seeds.add("gzip", "one.gz", gzipped(text));
  seeds.add("gzip", "members.gz", gzipped(text) + gzipped("") + gzipped(other) + std::string(5, '\0'));
  seeds.add("zstd", "one.zst", zstd_packed(text));
  seeds.add("zstd", "frames.zst", zstd_packed(text) + std::string("\x50\x2A\x4D\x18\x02\0\0\0ab", 10) + zstd_packed(other));
}

}  // namespace
}  // namespace trident::fuzz

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: make_fuzz_seeds FOLDER\n");
    return 64;
  }
  try {
    const trident::fuzz::Seeds seeds(arguments[1]);
    trident::create_folder(seeds.scratch("run"));
    trident::fuzz::add_configurations(seeds);
    trident::fuzz::add_lines(seeds);
    trident::fuzz::add_scripts(seeds);
    trident::fuzz::add_failures(seeds);
    trident::fuzz::add_checkpoints(seeds);
    trident::fuzz::add_datasets(seeds);
    trident::fuzz::add_tokenizers(seeds);
    trident::fuzz::add_ranks(seeds);
    trident::fuzz::add_patterns(seeds);
    trident::fuzz::add_compressed(seeds);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_fuzz_seeds: %s\n", error.what());
    return 1;
  }
}
