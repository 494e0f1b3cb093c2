// Tests what a configuration may not say: every refusal is one line that names file, line, key, value and remedy.
#include "model/config/model_stats.h"
#include "tests/support/error_text.h"
#include "tests/train/config_support.h"
#include "train/config/near_sizes.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"
#include "train/config/option_values.h"
#include "train/config/resolve_model.h"
#include "train/config/resolve_tuning.h"

namespace trident {
namespace {

using testing_support::kSmall;
using testing_support::refusal;
using testing_support::small_with;

void expect_refusal(const std::vector<std::string>& settings, const std::vector<std::string>& contains,
                    const std::string& text = kSmall) {
  const std::string message = refusal(settings, text);
  for (const std::string& part : contains)
    EXPECT_NE(message.find(part), std::string::npos) << "wanted " << part << " in: " << message;
}

std::string with(const std::string& member) {
  std::string text = kSmall;
  return text.insert(1, "\n" + member + ",");
}

TEST(ConfigRefuses, MalformedFiles) {
  expect_refusal({}, {"c.json:2:", "not valid JSON"}, "{\n\"run\": }");
  expect_refusal({}, {"c.json: must be an object"}, "[1]");
  expect_refusal({}, {"c.json:2:", "duplicate key \"eval\""}, with("\"eval\": {}, \"eval\": {}"));
}

TEST(ConfigRefuses, WrongTypes) {
  expect_refusal({}, {"c.json:2: device = 3: must be \"auto\", \"cpu\" or \"cuda\""}, with("\"device\": 3"));
  expect_refusal({}, {"c.json:2: parallel.tensor = \"4\": must be an integer from 1 to 65536"},
                 with("\"parallel\": {\"tensor\": \"4\"}"));
  expect_refusal({}, {"parallel.tensor = 2.5: must be an integer"}, with("\"parallel\": {\"tensor\": 2.5}"));
  expect_refusal({}, {"run.seed = 18446744073709551616: must be an integer"}, R"({"run": {"seed": 18446744073709551616}})");
  expect_refusal({}, {"eval = 5: must be an object with keys every, steps"}, with("\"eval\": 5"));
  expect_refusal({}, {"eval = null: must be an object"}, with("\"eval\": null"));
  const std::string consents = R"(must be "model", "model.init_from", "run", "run.seed", )";
  for (const std::string value : {"[1]", "{}", "\"log.every\"", "\"data.valid\"", "[\"optimizer.lrr\"]", "\"\""})
    expect_refusal({"checkpoint.allow=" + value},
                   {"checkpoint.allow = " + value + ": " + consents, "\"data.tokenizer\" or a list of these"});
  for (const auto& [meant, near] : {std::pair("sed", "run.seed"),
                                    {"modle", "model"},
                                    {"batch_global", "batch.global"},
                                    {"tokenizer", "data.tokenizer"},
                                    {"data.train.weight", "data.train.weights"}})
    expect_refusal({fmt::format("checkpoint.allow=[\"data\",\"{}\"]", meant)},
                   {consents, fmt::format("; did you mean \"{}\"?", near)});
  for (const char* once : {"optimizer", "optimizer.lr", "lr_schedule.decay_steps"})
    EXPECT_EQ(refusal({fmt::format("checkpoint.allow={}", once)}), "accepted") << "earlier versions asked for it";
  expect_refusal({"checkpoint.staging=some"}, {"checkpoint.staging = \"some\": must be a number >= 0 or \"auto\""});
  expect_refusal({"checkpoint.content=moments"}, {"checkpoint.content = \"moments\": must be \"all\" or \"weights\""});
  expect_refusal({"run.threads_per_rank=0"}, {"run.threads_per_rank = 0: must be an integer from 1 to 1024 or \"auto\""});
  expect_refusal({"run.threads_per_rank=all"}, {"must be an integer from 1 to 1024 or \"auto\""});
  expect_refusal({"run.pin=1"}, {"--set: run.pin = 1: must be true or false"});
  expect_refusal({"run.steps=many"}, {"--set: run.steps = \"many\": must be an integer >= 1"});
  expect_refusal({"optimizer.betas=[0.9]"}, {"optimizer.betas = [0.9]: must be a list of 2 numbers"});
  expect_refusal({"optimizer.betas=[0.9,\"x\"]"}, {"must be a list of 2 numbers"});
  expect_refusal({"parallel.layers=[1.5]"}, {"parallel.layers = [1.5]: must be a list of integers >= 1 or null"});
  expect_refusal({"data.train=5"}, {"data.train = 5: must be a text or a list of paths"});
  expect_refusal({"data.train=[{\"weight\":1}]"}, {"data.train = ", "\"path\": text"});
  expect_refusal({"data.train=[{\"path\":\"a\",\"wight\":1}]"}, {"data.train = ", "\"weight\": number > 0"});
  expect_refusal({"data.train=[]"}, {"data.train = []: an empty list"});
}

TEST(ConfigRefuses, OutOfRange) {
  expect_refusal({"parallel.tensor=0"}, {"parallel.tensor = 0: must be an integer from 1 to 65536"});
  expect_refusal({"parallel.pipeline=-1"}, {"parallel.pipeline = -1"});
  expect_refusal({"run.steps=0"}, {"run.steps = 0: must be an integer >= 1"});
  expect_refusal({"run.seed=-1"}, {"run.seed = -1"});
  expect_refusal({"batch.micro=0"}, {"batch.micro = 0"});
  expect_refusal({"recompute.head_chunk=-1"}, {"recompute.head_chunk = -1: must be an integer from 0 to 2147483647"});
  expect_refusal({"optimizer.lr=-1e-3"}, {"optimizer.lr = -0.001: must be a number > 0"});
  expect_refusal({"optimizer.lr=0"}, {"optimizer.lr = 0: must be a number > 0"});
  expect_refusal({"optimizer.eps=0"}, {"optimizer.eps = 0: must be a number > 0"});
  expect_refusal({"optimizer.betas=[0.9,1.0]"}, {"must be a list of 2 numbers >= 0 and < 1"});
  expect_refusal({"model.dropout=1"}, {"model.dropout = 1: must be a number >= 0 and < 1 or null"});
  expect_refusal({"parallel.grad_sync={\"every\":0}"}, {"parallel.grad_sync = {\"every\":0}", "k >= 1"});
  expect_refusal({"parallel.grad_sync={\"evry\":2}"}, {"{\"every\": k}"});
  expect_refusal({"data.train=[{\"path\":\"a\",\"weight\":0}]"}, {"a weight must be a number > 0"});
  expect_refusal({"parallel.bucket_mb=0"}, {"parallel.bucket_mb = 0"});
}

TEST(ConfigRefuses, UnknownValuesWithTheNearest) {
  expect_refusal({"parallel.schedule=1fb1"}, {"parallel.schedule = \"1fb1\": must be \"gpipe\"", "did you mean \"1f1b\"?"});
  expect_refusal({"parallel.zero=zero4"}, {"did you mean \"zero"});
  expect_refusal({"precision.compute=bf61"}, {"did you mean \"bf16\"?"});
  expect_refusal({"model.model_type=lama", "model.preset=null"}, {"must be one of gpt2, llama, ", "; did you mean \"llama\"?"});
  expect_refusal({"model.preset=lama"}, {"--set: model.preset = \"lama\": no such model preset; did you mean \"llama-1m\"?"});
  expect_refusal({"loss.type=dpo", "data.samples=packed", "reference=adapter_of"},
                 {"reference = \"adapter_of\": must be \"initial\", \"adapter_off\" or", "; did you mean \"adapter_off\"?"});
  expect_refusal({"device=GPU"}, {"device = \"GPU\": must be \"auto\", \"cpu\" or \"cuda\"; did you mean \"cuda\"?"});
  expect_refusal({"precision.master=bf16"}, {"precision.master = \"bf16\": must be \"fp32\""});
  expect_refusal({"parallel.order=tp-dp-pp"}, {"parallel.order = \"tp-dp-pp\": must be the axes tp, cp, dp, pp in any order"});
  expect_refusal({"parallel.order=tp-tp-dp-pp"}, {"parallel.order"});
  expect_refusal({"data.split=a,b"}, {"data.split = \"a,b\": must be up to three shares"});
  for (const char* split : {"0,0", "1,2,3,4", "1,,2", ".", "1.2.3", ""})
    EXPECT_NE(refusal({std::string("data.split=") + split}), "accepted") << split;
  expect_refusal({"run.dir="}, {"run.dir = \"\": must not be empty"});
  expect_refusal({"run.dir=\"a\\u0000b\""}, {"contains a control character"});
  expect_refusal({"run.dir=" + std::string(5000, 'x')}, {"longer than 4096 bytes"});
}

TEST(ConfigRefuses, UnknownKeysWithTheNearest) {
  expect_refusal({}, {"c.json:2: unknown key parallel.tensr; did you mean parallel.tensor?"}, with("\"parallel\": {\"tensr\": 2}"));
  expect_refusal({}, {"c.json:2: unknown key paralel; did you mean parallel?"}, with("\"paralel\": {}"));
  expect_refusal({}, {"unknown key lr; did you mean optimizer.lr?"}, with("\"lr\": 1"));
  expect_refusal({}, {"c.json:2: model.hiden_size = 4: unknown key", "did you mean \"hidden_size\"?"},
                 R"({"run": {"steps": 1}, "data": {"train": "a"}, "batch": {"global": 1, "sequence": 8}, "optimizer": {"lr": 1},
                     "model": {"model_type": "llama", "hiden_size": 4}})");
  expect_refusal({"run.step=3"}, {"--set: unknown key run.step; did you mean run.steps?"});
  expect_refusal({"data.sampels=packed"}, {"--set: unknown key data.sampels; did you mean data.samples?"});
  expect_refusal({"parallel.tp=3"}, {"did you mean parallel.tensor?"});
  expect_refusal({"parallel.virtual=2"}, {"unknown key parallel.virtual; did you mean parallel.virtual_stages?"});
  EXPECT_EQ(refusal({"parallel.zzzzzz=2"}).find("did you mean"), std::string::npos) << "not any short key of the block";
  expect_refusal({"train_batch_size=3"}, {"did you mean batch.global?"});
  for (const char* const word : {"batch.size", "batch_size", "bs"})
    expect_refusal({std::string(word) + "=3"}, {std::string("--set: unknown key ") + word + "; did you mean batch.micro?"});
  expect_refusal({"run.epoch=3"}, {"did you mean run.epochs?"});
  expect_refusal({"threads=3"}, {"did you mean run.threads_per_rank?"});
  expect_refusal({"checkpoint.keep=3"}, {"did you mean checkpoint.keep_last?"});
  expect_refusal({"optimize.epss=3"}, {"did you mean optimizer.eps?"});
  expect_refusal({"data.files=a"}, {"unknown key data.files; data has the keys train, valid"});
  expect_refusal({"parallel.lr=3"}, {"did you mean optimizer.lr?"});
  expect_refusal({"zzzzzzzzzzz=3"}, {"unknown key zzzzzzzzzzz"});
  EXPECT_EQ(refusal({"zzzzzzzzzzz=3"}).find("did you mean"), std::string::npos);
  expect_refusal({"model.presett=x"}, {"unknown key model.presett; did you mean model.preset?"});
  EXPECT_TRUE(refusal({"model=llama-1M"})
                  .ends_with("dropout; did you mean model.preset? (or model.init_from, a local folder of Hugging Face's form)"));
  EXPECT_TRUE(refusal({"model=Qwen/Qwen2.5-0.5B"})
                  .ends_with("dropout; did you mean model.init_from? (must be a local folder: nothing is downloaded)"));
  expect_refusal({}, {"unknown key a\\u001b[31m"}, with("\"a\\u001b[31m\": 1"));
}

// Users of other systems write these as keys, in a file or with --set.
struct ForeignKey {
  const char* setting;
  const char* answer;  // "": none
};

constexpr ForeignKey kForeignKeys[] = {
    {"eval_steps=5", "did you mean eval.every?"},
    {"eval_strategy=steps", "did you mean eval.every? (steps between evaluations, or epoch; 0: none)"},
    {"save_steps=5", "did you mean checkpoint.every?"},
    {"logging_steps=5", "did you mean log.every?"},
    {"per_device_train_batch_size=4", "did you mean batch.micro?"},
    {"gradient_accumulation_steps=8", "did you mean batch.global? (batch.micro x parallel.data x N)"},
    {"num_train_epochs=3", "did you mean run.epochs?"},
    {"epochs=3", "did you mean run.epochs?"},
    {"batch_size=8", "did you mean batch.global?"},
    {"warmup_ratio=0.1", "did you mean lr_schedule.warmup_steps? (a share of run.steps)"},
    {"optimizer.warmup_steps=10", "did you mean lr_schedule.warmup_steps?"},
    {"max_seq_length=512", "did you mean batch.sequence?"},
    {"gradient_checkpointing=true", "did you mean recompute.policy = \"full\"?"},
    {"gradient_checkpointing=false", "; leave it out"},
    {"bf16=true", "did you mean precision.compute = \"bf16\"?"},
    {"fp16=false", "; leave it out"},
    {"packing=true", "did you mean data.samples?"},
    {"report_to=wandb", "did you mean log.tensorboard = true?"},
    {"wandb_entity=x", "ten lines in docs/logs.md send metrics.jsonl to "},
    {"log.wandb=true", "; leave it out: nothing is sent anywhere; ten lines in docs/logs.md send metrics.jsonl to "},
    {"log.mlflow=true", "ten lines in docs/logs.md send metrics.jsonl to "},
    {"wandb.enabled=true", "ten lines in docs/logs.md send metrics.jsonl to "},
    {"deepspeed=ds.json", "; see trident import FILE"},
    {"zero_optimization.stage=2", "did you mean parallel.zero?"},
    {"fsdp=full_shard", "did you mean parallel.zero = \"zero3\"?"},
    {"fsdp_config.min_num_params=1", "leave it out: each block of the model is a unit"},
    {"attn_implementation=sdpa", "leave it out: attention never stores the scores"},
    {"scheduler.t_max=5", "did you mean lr_schedule.decay_steps?"},
    {"num-layers=4", "did you mean model.num_hidden_layers?"},
    {"context_length=4", "did you mean batch.sequence?"},
    {"lora=true", "did you mean adapter.type = \"lora\"? (with adapter.r"},
    {"lora_r=16", "did you mean adapter.r?"},
    {"peft.lora_alpha=16", "did you mean adapter."},
    {"use_peft=true", "did you mean adapter.type = \"lora\"?"},
    {"load_in_4bit=true", "its key model.quantize.type is not built yet"},
    {"data.chat_template=x", "; see trident data prepare --chat (the tokenizer folder's own template counts"},
    {"model.lora_r=16", "unknown key model.lora_r; did you mean adapter.r?"},
    {"model.name=llama", "unknown key model.name; did you mean model.preset?"},
    {"optim=muon", "optimizer.type = \"muon\": not built; use adamw or lion"},
    {"eval.data=x", "did you mean data.valid?"},
    {"test.data=x", "trident eval --data PREFIX"},
    {"optimizer=lion", "did you mean optimizer.type = \"lion\"?"},
    {"precision=bf16", "did you mean precision.compute"},
    {"optimizer.schedule=cosine", "did you mean lr_schedule.type?"},
    {"schedule=cosine", ""},
    {"schedule=1f1b", "did you mean parallel.schedule?"},
    {"layers=4", "did you mean model.num_hidden_layers?"},
    {"every=4", ""},
    {"recompute.layers=4", ""},
    {"validation.data=x", "did you mean data.valid?"},
    {"optimizer.warmup=4", "did you mean lr_schedule.warmup_steps?"},
    {"model.layers=4", "did you mean model.num_hidden_layers?"},
    {"n_layer=4", "did you mean model.n_layer? (with model_type gpt2; num_hidden_layers with others)"},
    {"tensor_parallel_size=2", "did you mean parallel.tensor?"},
    {"pp_degree=2", "did you mean parallel.pipeline?"},
    {"max_iters=2", "did you mean run.steps?"},
    {"out_dir=x", "did you mean run.dir?"},
    {"nproc_per_node=8", "did you mean parallel.data? (mpirun or srun says how many ranks there are"},
    {"checkpoint.save_every=5", "did you mean checkpoint.every?"},
};

TEST(ConfigRefuses, WordsOfOtherSystemsGetTrueAnswersOrNone) {
  for (const auto& [setting, answer] : kForeignKeys) {
    const std::string said = refusal({setting}), text = setting;
    EXPECT_TRUE(*answer != 0 || said.find("did you mean") == said.npos) << said;
    EXPECT_NE(said.find(answer), said.npos) << setting << " is answered with: " << said;
    const std::size_t equals = text.find('=');
    if (text.find('.') < equals) continue;
    // The same in the file.
    const std::string in_file = refusal({}, with(fmt::format("\"{}\": \"{}\"", text.substr(0, equals), text.substr(equals + 1))));
    EXPECT_TRUE(text.ends_with("=false") || in_file.find(answer) != in_file.npos) << in_file;
  }
  expect_refusal({"trai=1"}, {"did you mean train?"});
  expect_refusal({"chec=1"}, {"did you mean checkpoint?"});
  expect_refusal({"optim=adamw"}, {"did you mean optimizer.type"});
  expect_refusal({"data=x"}, {"data = \"x\": must be an object with keys train, valid", "; did you mean data.train?"});
  expect_refusal({"layers=[2, 2]"}, {"did you mean parallel.layers?"});
  for (const char* rule : {"muon", "adan", "sgd", "nadam", "radam", "adafactor"}) {
    const std::string said = refusal({std::string("optimizer.type=") + rule});
    EXPECT_NE(said.find("not built; use adamw or lion"), said.npos) << said;
    EXPECT_EQ(said.find("did you mean"), said.npos) << said;
  }
}

TEST(ConfigRefuses, ReservedValuesByName) {
  for (const char* setting :
       {"precision.compute=fp8", "precision.compute=mxfp8", "parallel.expert=2", "parallel.ep=2", "parallel.expert_parallel=2",
        "parallel.schedule=dualpipe", "parallel.schedule=ZBV", "parallel.schedule=zb_h1", "parallel.zero=HYBRID_SHARD", "hsdp=true",
        "parallel.hybrid_shard=true", "parallel.cp_size=2", "parallel.schedule=csv"})
    expect_refusal({setting}, {"not built yet"});
  for (const char* name : {"ZeroBubble", "zero-bubble", "zb1p", "ZB1P"})
    expect_refusal({std::string("parallel.schedule=") + name}, {"not built yet; use 1f1b"});
  expect_refusal({"parallel.schedule=ZBVZeroBubble"}, {"looks like \"zb-v\"; not built yet; use interleaved"});
  expect_refusal({"parallel.schedule=Interleaved1F1B"}, {"did you mean \"interleaved\"?"});
  expect_refusal({"parallel.zero=MULTI_GPU"}, {"; did you mean \"ddp\"?"});
  expect_refusal({"parallel.schedule=ZBH1"}, {"parallel.schedule = \"ZBH1\": looks like \"zb-h1\"; not built yet; use 1f1b"});
  expect_refusal({"parallel.context=2"}, {"parallel.context = 2: not built yet; remove the key or set it to 1"});
  expect_refusal({"elastic=[\"1DP\", \"2CP\"]"}, {"elastic[1]: parallel.context = 2: not built yet"});
  expect_refusal({"precision.compute=bf16", "precision.loss_scale=dynamic"},
                 {"precision.loss_scale = \"dynamic\": precision.compute \"bf16\" needs none; remove the key or set "
                  "precision.compute to \"fp16\""});
  expect_refusal({"precision.compute=auto", "precision.loss_scale=2"},
                 {"precision.loss_scale = 2.0: precision.compute \"auto\" needs none"});
  for (const char* scale : {"1000", "1023.5"})
    expect_refusal({"precision.compute=fp16", fmt::format("precision.loss_scale={}", scale)},
                   {"precision.loss_scale = ", "must be a power of two, so that scaling is exact; take 512 or \"dynamic\""});
  for (const char* scale : {"0", "0.5", "-2", "8589934592", "\"static\"", "true", "[1]"})
    expect_refusal({"precision.compute=fp16", fmt::format("precision.loss_scale={}", scale)},
                   {"precision.loss_scale = ", "a number from 1 to 4294967296", "\"dynamic\" or null"});
  for (const char* compute : {"fp32", "fp16"})
    expect_refusal({fmt::format("precision.compute={}", compute), "precision.stochastic_rounding=true"},
                   {"precision.stochastic_rounding = true: only bf16 weights are rounded at random, and precision.compute is",
                    fmt::format("is \"{}\"; set it to \"bf16\", or precision.stochastic_rounding to false", compute)});
  expect_refusal({"precision.stochastic_rounding=1"}, {"precision.stochastic_rounding = 1: must be true or false"});
  for (const char* schedule : {"zb-h1", "zb-v", "dualpipe-v", "csv"})
    expect_refusal({fmt::format("parallel.schedule={}", schedule)},
                   {fmt::format("parallel.schedule = \"{}\": not built yet", schedule)});
  expect_refusal({"model.quantize.type=nf4"}, {"model.quantize.type = \"nf4\": not built yet; remove the key or set it to null"});
  expect_refusal({"model.quantize={\"skip\": [\"lm_head\"]}"}, {"model.quantize.skip = [\"lm_head\"]: not built yet"});
  expect_refusal({"model.quantize.typ=nf4"}, {"did you mean model.quantize.type?"});
  std::string quantized = kSmall;
  quantized.insert(quantized.find("\"preset\""), "\"quantize\": {\"type\": null, \"block\": 32}, ");
  expect_refusal({}, {"c.json:3: model.quantize.block = 32: not built yet; remove the key or set it to 64"}, quantized);
  quantized.replace(quantized.find("{\"type"), 27, "\"nf4\"");
  expect_refusal({}, {"model.quantize = \"nf4\": must be an object with keys type, block, double, skip"}, quantized);
  expect_refusal({}, {"offload.optimizer = \"host\": not built yet; remove the key or set it to \"none\"; also ",
                      "offload.path = \"/nvme\": not built yet"},
                 with("\"offload\": {\"optimizer\": \"host\", \"path\": \"/nvme\"}"));
  for (const char* setting : {"precision.fp8=true", "parallel.shard_group=node", "parallel.shard_group=8",
                              "parallel.secondary_shards=8", "parallel.quantized_weights=true", "parallel.quantized_gradients=4",
                              "parallel.tensor_overlap=chunked", "offload.parameters=disk", "offload.depth=3"})
    expect_refusal({setting}, {"not built yet"});
  expect_refusal({"data.reset_position_ids=1"}, {"data.reset_position_ids = 1: must be true or false"});
  expect_refusal({"data.boundaries=sentence"}, {"data.boundaries = \"sentence\": must be \"eod\" or \"index\""});
  expect_refusal({"data.eod=-1"}, {"data.eod = -1: must be an integer from 0 to"});
  expect_refusal({"data.mean_document=0"}, {"data.mean_document = 0: must be a number >= 1"});
  expect_refusal({"data.mean_document=1e-300"}, {"data.mean_document = 1e-300: must be a number >= 1"});
  expect_refusal({"loss.normalize=document"}, {"loss.normalize = \"document\": must be \"token\" or \"sequence\""});
  expect_refusal({"loss.normalize=sequence"}, {"loss.normalize = \"sequence\": nothing says where a sequence of a sample ends",
                                               "data.samples to \"packed\""});
  expect_refusal({"data.boundaries=null"}, {"data.boundaries = \"null\": must be \"eod\" or \"index\""});
  expect_refusal({"parallel=2CP x 2DP"}, {"parallel.context = 2: not built yet"});
  expect_refusal({"log.prometheus="}, {"log.prometheus = \"\": must not be empty"});
  expect_refusal({"log.prometheus=runs/a/metrics.jsonl"}, {"log.prometheus = \"runs/a/metrics.jsonl\": a file of that name"});
  expect_refusal({}, {"log.prometheus = [1]: must be a text or null"}, with("\"log\": {\"prometheus\": [1]}"));
  expect_refusal({"log.report=\"yes\""}, {"log.report = \"yes\": must be true or false"});
  expect_refusal({"log.on_error=ignore"}, {"log.on_error = \"ignore\"", "\"continue\"", "\"stop\""});
}

TEST(ConfigRefuses, StepsThatCannotBeTraced) {
  for (const char* steps : {"[3]", "[3,4,5]", "[5,3]", "[1,1000000]"})
    expect_refusal({std::string("log.trace_steps=") + steps},
                   {std::string("log.trace_steps = ") + steps + ": not a first and a last step up to run.steps = "});
  expect_refusal({"log.trace_steps=[0,1]"}, {"log.trace_steps = [0,1]"});
  expect_refusal({"log.trace_steps=true"}, {"log.trace_steps = true: must be a list of integers"});
  expect_refusal({"log.tensorboard=null"}, {"log.tensorboard = null: must be true or false"});
}

TEST(ConfigRefuses, LayoutTexts) {
  for (const char* text : {"", "2", "DP", "2XP", "2DP x 3DP", "2D", "2DP 4", "0x2DP", "99999999DP", "2DP x 4QP", "-2DP",
                           "2DPx2TPx"})
    EXPECT_THROW(parse_layout(text, "c.json:1: "), ConfigError) << text;
  expect_refusal({"parallel=0DP"}, {"parallel.data = 0"});
  expect_refusal({}, {"c.json:2: parallel = \"2DP x 4QP\": expected TP, PP, DP or CP", "write it like \"2DP x 4PP x 4TP\""},
                 with("\"parallel\": \"2DP x 4QP\""));
}

TEST(ConfigRefuses, IncompleteFiles) {
  const auto without = [](const std::string& part, const std::string& instead) {
    std::string text = kSmall;
    return text.replace(text.find(part), part.size(), instead);
  };
  expect_refusal({}, {"run.steps: missing; give an integer >= 1"}, without("\"steps\": 5", ""));
  expect_refusal({}, {"batch.global: missing"}, without("\"global\": 8, ", ""));
  expect_refusal({}, {"batch.sequence: missing"}, without(", \"sequence\": 64", ""));
  expect_refusal({}, {"data.train: missing"}, without("\"train\": \"corpus/text\"", ""));
  expect_refusal({}, {"model: missing; give model.preset"}, without("\"preset\": \"llama-1m\"", ""));
  expect_refusal({}, {"but no model_type"}, without("\"preset\"", "\"n_embd\": 3, \"zz\""));
  expect_refusal({"model.hf_config=c.json", "model.preset=gpt2-124m"}, {"exclude each other"});
  expect_refusal({"model.preset=gpt2-124m", "model.model_type=llama"}, {"exclude each other"});
  expect_refusal({"model.hidden_size=3"}, {"model.hidden_size = 3: keys of a model (but sliding_window) go with model_type"});
  expect_refusal({"model.sliding_window=null", "model.hidden_size=3"}, {"keys of a model (but sliding_window) go with model_type"});
  expect_refusal({"model.preset=null", "model.model_type=llama", "model.seq_length=3"},
                 {"unknown key model.seq_length; did you mean batch.sequence?"});
  const auto missing = [](const std::vector<std::string>& set) { return error_of<DataError>([&] { small_with(set); }); };
  expect_parts(missing({"model.preset=null", "model.init_from=no/such"}), {"model.init_from = no/such: no such folder (noth"});
  expect_parts(missing({"model.preset=null", "model.init_from=/"}), {"model.init_from = / is neither a Hugging Face folder nor a"});
  expect_parts(missing({"adapter.init_from=no"}), {"adapter.init_from = \"no\": no/adapter_config.json is not there"});
}

TEST(ConfigRefuses, Contradictions) {
  for (const char* of_dpo : {"beta=0.2", "variant=ipo", "label_smoothing=0.1", "nll_weight=1", "length_normalized=true"})
    expect_refusal({fmt::format("loss.{}", of_dpo)}, {": only loss.type \"dpo\" has it; set loss.type to that"});
  EXPECT_EQ("accepted", refusal({"loss.beta=0.1"})) << "the default, as config.resolved.json has it";
  expect_refusal({"parallel.virtual_stages=2"}, {"parallel.virtual_stages = 2", "set parallel.schedule to \"interleaved\""});
  expect_refusal({"parallel.pipeline=2", "parallel.layers=[1,2,3]"}, {"parallel.layers = [1,2,3]: 3 counts", "need 2"});
  expect_refusal({"parallel.tensor=3", "parallel.sequence_parallel=true"},
                 {"batch.sequence = 64: not divisible by parallel.tensor = 3", "; use 63 or set parallel.sequence_parallel"});
  expect_refusal({"batch.micro=3"}, {"batch.global = 8: not divisible by batch.micro = 3; use 6 or 9, or batch.micro = 2"});
  expect_refusal({"batch.micro=3", "parallel.data=8"}, {"batch.micro = 3; use 24, or batch.micro = 1"});
  expect_refusal({"batch.micro=3", "parallel.data=3"}, {"batch.micro = 3; use 9"});
  static_assert(largest_divisor(7, INT32_MAX) == 7 && largest_divisor(12, 5) == 4 && largest_divisor(INT32_MAX, 46341) == 1);
  expect_refusal({"lr_schedule.min_lr=1"}, {"lr_schedule.min_lr = 1: above optimizer.lr"});
  EXPECT_EQ(small_with({"run.steps=1e3"}).run.steps, 1000);
  expect_refusal({"run.steps=1e30"}, {"run.steps = ", "must be an integer"});
  expect_refusal({"run.steps=1.5"}, {"run.steps = 1.5: must be an integer"});
  expect_refusal({"parallel=4"}, {"or a text such as \"2DP x 2PP x 1TP\""});
  for (const char* length : {"1.5", "-0.5", "0.0", "1.0"})
    expect_refusal({std::string("lr_schedule.warmup_steps=") + length}, {"must be an integer >= 0 or a share between 0 and 1"});
  expect_refusal({"lr_schedule.warmup_steps=10", "lr_schedule.decay_steps=10"}, {"lr_schedule.warmup_steps = 10: must be below"});
  expect_refusal({"lr_schedule.type=wsd"}, {"lr_schedule.wsd_decay_steps = null"});
  expect_refusal({"lr_schedule.decay_steps=10", "lr_schedule.wsd_decay_steps=11"},
                 {"lr_schedule.wsd_decay_steps = 11: must be at most"});
  const std::string wsd = "lr_schedule.type=wsd", warm_up = "lr_schedule.warmup_steps=", tail = "lr_schedule.wsd_decay_steps=0.6";
  expect_refusal({wsd, warm_up + "0.5", tail, "run.steps=10"},
                 {"lr_schedule.wsd_decay_steps = 0.6: of 10 steps, lr_schedule.warmup_steps = 0.5 leaves 5 for"});
  expect_refusal({wsd, warm_up + "5", tail, "lr_schedule.decay_steps=10"}, {"= 0.6: of 10 steps, lr_schedule.warmup_steps = 5 "});
  expect_refusal({"data.valid=a", "data.split=9,1"}, {"data.split = \"9,1\": data.valid is given too"});
}

TEST(ConfigRefuses, CountsOfAxesThatAreNone) {
  expect_refusal({"cuda.nccl_max_ctas={\"ep\": 4}"},
                 {"cuda.nccl_max_ctas = {\"ep\":4}: no axis \"ep\"; must be an integer from 0 to 64 or any of "
                  "{\"tp\": n, \"dp\": n, \"pp\": n} with integers n from 0 to 64"});
  for (const char* wrong : {"65", "-1", "1.5", "\"4\"", "null"})
    expect_refusal({fmt::format("cuda.nccl_max_ctas={{\"dp\": {}}}", wrong)},
                   {"cuda.nccl_max_ctas = {\"dp\":", "must be an integer from 0 to 64 or any of {"});
}

TEST(ConfigRefuses, AnyOrderOfLaunchesWithoutLimits) {
  for (const char* limits : {"0", "{\"dp\": 4, \"tp\": 4}", "{\"pp\": 4}"})
    expect_refusal({"cuda.nccl_any_order=true", fmt::format("cuda.nccl_max_ctas={}", limits)},
                   {"cuda.nccl_any_order = true: cuda.nccl_max_ctas = ", "limit every axis (cuda.nccl_max_ctas = 4, say)"});
  expect_refusal({"cuda.spare_multiprocessors=129"}, {"cuda.spare_multiprocessors = 129", "0 to 128"});
}

TEST(ConfigRefuses, AllMistakesAreToldAtOnce) {
  const std::string text =
      with("\"optimiser\": {}, \"parallel\": {\"tensr\": 2, \"zero\": \"zero9\"}, \"device\": 3,\n \"eval\": 5");
  expect_refusal(
      {"run.stepz=3", "optimizer.lr=fast", "model.preset=llama-405b", "lr=1", "a"},
      {"c.json:2: unknown key optimiser; did you mean optimizer?", "; also c.json:2: unknown key parallel.tensr; did you",
       "c.json:2: parallel.zero = \"zero9\": must be", "c.json:2: device = 3: must be", "c.json:3: eval = 5: must be",
       "; also --set: unknown key run.stepz; did you mean run.steps?", "; also --set: optimizer.lr = \"fast\": must be",
       "; also --set: unknown key lr;", "; also --set \"a\": must be path=value",
       "; also --set: model.preset = \"llama-405b\": no such model preset; did you mean \"llama3.1-405b\"?"},
      text);
  expect_refusal({},
                 {"batch.global: missing", "; also batch.sequence: missing", "; also data.train: missing",
                  "; also run.steps: missing", "; also model: missing"},
                 "{}");
  expect_refusal({"model.lora_r=16", "model.seq_length=3"}, {"unknown key model.lora_r", "; also unknown key model.seq_length"});
  expect_refusal({"model.preset=null", "model.model_type=llama", "model.hidden_sise=3", "model.foo=3", "stepz=1"},
                 {"--set: unknown key stepz", "; also model.hidden_size: is missing",
                  "; also --set: model.hidden_sise = 3: unknown key", "; also --set: model.foo = 3: unknown key"});
  const std::pair<std::string, std::string> words[] = {
      {"num_layers", "model.num_hidden_layers"}, {"d_model", "model.hidden_size"}, {"n_heads", "model.num_attention_heads"},
      {"hidden_dim", "\"hidden_size\""}};
  for (const auto& [word, ours] : words)
    expect_refusal({"model.preset=null", "model.model_type=llama", "model." + word + "=3"},
                   {fmt::format("model.{} = 3: unknown key", word), "; did you mean " + ours});
  std::vector<std::string> many;
  for (int i = 0; i < 30; ++i) many.push_back(fmt::format("zzzz{}=1", i));
  expect_refusal(many, {"unknown key zzzz19; also others"});
}

TEST(ConfigRefuses, BadSettings) {
  expect_refusal({"run.steps"}, {"--set \"run.steps\": must be path=value, such as --set run.steps=VALUE"});
  expect_refusal({"run.steps: 3"}, {"must be path=value, such as --set run.steps=VALUE"});
  for (const char* setting : {"", "a", "a:3"}) expect_refusal({setting}, {"must be path=value, such as --set parallel.tensor=4"});
  expect_refusal({"=3"}, {"must be path=value"});
  expect_refusal({"optimizer.betas=[0.9,"}, {"--set optimizer.betas:1:", "not valid JSON"});
  expect_refusal({"batch=3"}, {"--set: batch = 3: must be an object with keys global, micro, sequence"});
  expect_refusal({"model..x=3"}, {"an empty key"});
  expect_refusal({"batch={\"mirco\": 3}"}, {"unknown key batch.mirco; did you mean batch.micro?"});
}

TEST(ConfigRefuses, AdaptersThatAreNone) {
  expect_refusal({"adapter.type=adalora"}, {"adapter.type = \"adalora\": must be ", "\"dora\""});
  expect_refusal({"adapter.r=16"},
                 {"adapter.r: adapter.type is null, so that there are no adapters; set adapter.type to \"lora\""});
  for (const std::string first : {"adapter.type=null", "adapter.init_from=folder"})
    expect_refusal({first, first.ends_with("l") ? "adapter.init_from=folder" : "adapter.type=null"},
                   {"adapter.type = null: training begins with the adapters of adapter.init_from = \"folder\"; leave adapter.type "
                    "out, or set adapter to null"});
  expect_refusal({"adapter.type=lora", "adapter.r=0"}, {"adapter.r = 0: must be an integer from 1 to 65536"});
  expect_refusal({"adapter.type=lora", "train.freeze=.*norm.*"},
                 {"train.freeze = ", "train whole by adapter.modules_to_save alone"});
  const auto expect_unresolved = [](std::vector<std::string> settings, const std::vector<std::string>& contains) {
    settings.emplace_back("adapter.type=lora");
    const TrainConfig config = parse_train_config(kSmall, "c.json", settings);
    expect_parts(error_of<ConfigError>([&] { resolve_tuning(config, resolve_model(config)); }), contains);
  };
  expect_unresolved({"adapter.target_modules=[\"q_proj\",\"v_prj\"]"},
                    {"adapter.target_modules: \"v_prj\" is no module of the model; it has ", "; did you mean \"v_proj\"?"});
  expect_unresolved({"adapter.target_modules=c_attn"}, {"\"c_attn\" is no module of the model; it has"});
  for (const char* end : {"embed_tokens", "lm_head", "model.embed_tokens"})
    expect_unresolved({fmt::format("adapter.target_modules=[\"{}\"]", end)}, {end, "are not built yet; leave it out"});
  expect_unresolved({"adapter.target_modules=\"(q_proj\""}, {"neither a module's name nor a regular expression"});
  expect_unresolved({"adapter.exclude_modules=\".*_proj\""}, {"no module is left by exclude_modules, modules_to_save"});
  expect_unresolved({"adapter.modules_to_save=[\"embed_tokns\"]"},
                    {"adapter.modules_to_save: \"embed_tokns\" is no module of the model; it has ", "mean \"embed_tokens\"?"});
  expect_unresolved({"adapter.modules_to_save=mlp", "adapter.target_modules=[\"up_proj\"]"}, {"no module is left"});
  expect_unresolved({"adapter.exclude_modules=[\"o_prj\"]"},
                    {"adapter.exclude_modules: \"o_prj\" is no module of the model; it has ", "; did you mean \"o_proj\"?"});
  expect_unresolved({"adapter.exclude_modules=all-linear"}, {"adapter.exclude_modules: ", "all-linear"});
  expect_unresolved({"adapter.layers=[8]"}, {"adapter.layers: 8: the model has layers 0 to 7"});
}

TEST(AdapterTargets, AreNamesOrPatterns) {
  const auto modules = [](std::vector<std::string> settings) {
    settings.emplace_back("adapter.type=lora");
    const TrainConfig config = parse_train_config(kSmall, "c.json", settings);
    return resolve_tuning(config, resolve_model(config))->adapters.modules;
  };
  EXPECT_EQ(modules({}).size(), 7u * 8);
  EXPECT_EQ(modules({"adapter.exclude_modules=[\"lm_head\"]"}).size(), 7u * 8);
  EXPECT_EQ(modules({"adapter.target_modules=all-linear"}).front(), (AdaptedModule{"model.layers.0.mlp.down_proj", 8, 1}));
  EXPECT_EQ(modules({"adapter.target_modules=[\"q_proj\",\"self_attn.v_proj\"]", "adapter.layers=[1,3]"}).size(), 4u);
  EXPECT_EQ(modules({R"(adapter.target_modules=".*\\.(q|v)_proj")",
                     "adapter.exclude_modules=[\"layers.0.self_attn.v_proj\"]"}).size(), 15u);
  const std::vector<AdaptedModule> scaled = modules({"adapter.r=4", "adapter.alpha=8", "adapter.rslora=true"});
  EXPECT_EQ(scaled.back(), (AdaptedModule{"model.layers.7.self_attn.v_proj", 4, 4}));
}

// PEFT's print_trainable_parameters() of Qwen2.5-1.5B.
TEST(AdapterTargets, HaveTheParametersThatPeftCounts) {
  const TrainConfig config =
      parse_train_config(kSmall, "c.json", {"model.preset=qwen2.5-1.5b", "adapter.type=lora", "adapter.r=16", "batch.sequence=64"});
  ModelConfig model = resolve_model(config);
  EXPECT_EQ(adapter_parameters(model), 0);
  model.tuning = resolve_tuning(config, model);
  EXPECT_EQ(adapter_parameters(model), 18464768);
  EXPECT_EQ(adapter_parameters(model, 2) * 28, 18464768);
}

// Every key, mechanically: a wrong type and, where there is a range, a value outside it.
TEST(ConfigRefuses, EveryKeyItsWrongTypeAndRange) {
  for (const Option& option : option_table()) {
    const bool takes_object = takes(option.takes, Takes::kEvery);
    const JsonValue wrong = takes_object ? JsonValue(true) : parse_json("{\"a\": 1}", "t");
    EXPECT_THROW(checked_value(option, wrong, ""), ConfigError) << option.path;
    if (takes(option.takes, Takes::kInteger) || takes(option.takes, Takes::kNumber)) {
      EXPECT_THROW(checked_value(option, JsonValue(-1), ""), ConfigError) << option.path;
      EXPECT_THROW(checked_value(option, JsonValue("x"), ""), ConfigError) << option.path;
    }
    if (!option.choices.empty()) {
      EXPECT_THROW(checked_value(option, JsonValue("no such choice"), ""), ConfigError) << option.path;
    }
    for (const ReservedValue& reserved : option.reserved_values)
      EXPECT_THROW(checked_value(option, JsonValue(reserved.value), ""), ConfigError);
  }
}

}  // namespace
}  // namespace trident
