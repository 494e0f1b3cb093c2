#include "data/tokenizer/chain_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/check.h"
#include "core/fnv1a.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/tokenizer/byte_spelling.h"

namespace trident {
namespace {

constexpr std::size_t kMaxAddedBytes = std::size_t{4} << 20, kMaxTextBytes = std::size_t{1} << 28;
constexpr std::string_view kEndOfDocument = "<|endoftext|>";
// GPT-2's pattern as OpenAI writes it by now: one tokenizer, whose data have one record.
constexpr std::string_view kGpt2Spelled = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// In the order of the file, as the library numbers them: one that the vocabulary lacks follows all ids that there are so far, and
// no gap of the vocabulary's counts.
void settle_added(ChainParts& parts) {
  auto next = static_cast<std::int32_t>(parts.tokens.size());
  std::erase_if(parts.added, [&](const AddedToken& token) {
    return token.id == AddedToken::kVocabulary && parts.tokens.find(token.content) < 0;
  });
  TokenTexts seen;
  std::unordered_set<std::int32_t> ids;
  std::size_t bytes = 0;
  for (AddedToken& token : parts.added) {
    if ((bytes += token.content.size()) > kMaxAddedBytes)
      throw DataError(fmt::format("{}: added tokens of more than {} bytes; leave some out", parts.source, kMaxAddedBytes));
    const std::int32_t found = parts.is_ranks ? token.id : parts.tokens.find(token.content);
    const std::int32_t expected = found < 0 ? next : found;
    if (seen.find(token.content) >= 0)
      throw DataError(fmt::format("{}: added token {} occurs twice; keep one of them", parts.source, in_quotes(token.content)));
    if (token.id >= 0 && token.id != expected)
      throw DataError(fmt::format("{}: added token {} has id {}, expected {}; use the files of one tokenizer", parts.source,
                                  in_quotes(token.content), token.id, expected));
    seen.add(token.content, seen.size());
    if (!ids.insert(expected).second)
      throw DataError(fmt::format("{}: id {} occurs twice; use the files of one tokenizer", parts.source, expected));
    token.id = expected;
    if (expected >= next) next = expected + 1;
  }
}

// Byte-level models of which no byte is unknown need none of the rules for what is.
void drop_idle_rules(BpeRules& rules, const TokenTexts& tokens) {
  if (!rules.over_bytes || !rules.prefix.empty() || !rules.suffix.empty()) return;
  for (std::size_t b = 0; b < 256; ++b) {
    std::string spelling;
    spell(static_cast<unsigned char>(b), &spelling);
    if (tokens.find(spelling) < 0) return;
  }
  rules = {.over_bytes = true, .ignore_merges = rules.ignore_merges};
}

std::string line_of_model(const ChainParts& parts) {
  if (parts.is_ranks) return "model BPE by ranks, over bytes";
  const BpeRules& rules = parts.rules;
  std::string line = fmt::format("model BPE over {}", rules.over_bytes ? "bytes" : "characters");
  if (rules.ignore_merges) line += ", ignore_merges";
  if (rules.byte_fallback) line += ", byte_fallback";
  if (rules.unk) line += fmt::format(", unk {}{}", *rules.unk, rules.fuse_unk ? " fused" : "");
  if (!rules.prefix.empty()) line += fmt::format(", continuing_subword_prefix {}", in_quotes(rules.prefix, rules.prefix.size()));
  if (!rules.suffix.empty()) line += fmt::format(", end_of_word_suffix {}", in_quotes(rules.suffix, rules.suffix.size()));
  return line;
}

// Added tokens beside GPT-2's one.
bool has_added_rules(const std::vector<AddedToken>& added) {
  if (added.size() != 1) return true;
  AddedToken only = added.front();
  only.normalized = only.special = false;  // says nothing of a token alone
  return !(only == AddedToken{.content = std::string(kEndOfDocument), .id = only.id});
}

// Fingerprints are stored: those of GPT-2's way to split text stay as they are.
std::string fingerprint_of(const ChainParts& parts, const TextsById& texts) {
  Fnv1a hash;
  const std::string model = line_of_model(parts);
  const bool is_gpt2 =
      parts.steps == std::vector{line_of_split(kGpt2Pattern, "Isolated", false)} && model == "model BPE over bytes";
  hash.add("byte-level BPE, GPT-2's pieces");
  if (!is_gpt2) {
    for (const std::string& step : parts.steps) hash.add(step);
    hash.add(model);
  }
  for (const std::int32_t id : parts.special.before) hash.add(static_cast<std::uint64_t>(id) | std::uint64_t{1} << 40);
  for (const std::int32_t id : parts.special.after) hash.add(static_cast<std::uint64_t>(id) | std::uint64_t{1} << 41);
  if (has_added_rules(parts.added)) {
    for (const AddedToken& token : parts.added) {
      hash.add(token.content);
      hash.add(static_cast<std::uint64_t>(token.id) << 32 | static_cast<std::uint64_t>(token.single_word) << 3 |
               static_cast<std::uint64_t>(token.lstrip) << 2 | static_cast<std::uint64_t>(token.rstrip) << 1 |
               static_cast<std::uint64_t>(token.normalized));
    }
  }
  for (const BpeMerge& merge : parts.merges)
    hash.add(static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint64_t>(merge.right));
  const TextsById& hashed = is_gpt2 ? texts : parts.tokens.of_id();
  for (std::size_t id = 0; id < hashed.num_ids(); ++id) {
    hash.add(hashed[id].size());
    hash.add(hashed[id]);
  }
  return hash.text();
}

class ChainTokenizer;

class ChainEncoder final : public Encoder {
 public:
  explicit ChainEncoder(const ChainTokenizer& tokenizer);
  void encode(std::string_view text, std::vector<std::int32_t>* ids, const TextRule& rule) override;

 private:
  // One call of encode().
  struct Call {
    std::string_view text;
    std::vector<std::int32_t>* ids;
    const TextRule& rule;
    std::size_t before = 0;      // ids without an end: those that were there
    std::size_t next_plain = 0;  // in rule.plain
    std::size_t end = 0;         // of the last id
  };
  bool counts(Call& call, const AddedToken& token, std::string_view own) const;
  void take(Call& call, const AddedToken& token, std::size_t begin, std::size_t end);
  static void push_end(Call& call, std::size_t end);
  void encode_stretch(Call& call, std::string_view stretch);
  void encode_normalized(Call& call, std::string_view text, std::string_view stretch);
  void set_ends(Call& call, std::string_view text, std::string_view stretch);

  const ChainTokenizer& tokenizer_;
  BpeModel::Worker worker_;
  std::string repaired_, normalized_;
};

class ChainTokenizer final : public Tokenizer {
 public:
  explicit ChainTokenizer(ChainParts parts);

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<ChainEncoder>(*this); }
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string_view token_text(std::int32_t id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.num_ids()); }
  const SpecialIds& special_ids() const override { return parts_.special; }
  std::optional<std::int32_t> find(std::string_view token) const override;
  bool is_control(std::int32_t id) const override { return is_control_[static_cast<std::size_t>(id)]; }
  const std::string& name() const override { return parts_.name; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::vector<std::string>& description() const override { return description_; }

  const TextChain& text() const { return parts_.text; }
  const BpeModel& model() const { return *model_; }
  const AddedTokens& first() const { return first_; }
  const AddedTokens& normalized() const { return normalized_; }

 private:
  std::string content_of(const AddedToken& token) const;
  AddedTokens added_where(bool normalized) const;
  void settle_special();
  void describe();

  ChainParts parts_;  // without tokens and merges, which the model has
  TextsById texts_;   // decoded, each alone
  std::vector<bool> is_control_;
  std::string fingerprint_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens first_, normalized_;
  std::vector<std::string> description_;
};

ChainTokenizer::ChainTokenizer(ChainParts parts) : parts_(std::move(parts)), first_({}), normalized_({}) {
  settle_added(parts_);
  if (!parts_.is_ranks) drop_idle_rules(parts_.rules, parts_.tokens);
  const TextsById& spelled = parts_.tokens.of_id();
  std::unordered_map<std::size_t, std::string> contents;
  std::size_t size = spelled.num_ids();
  std::vector<std::int32_t> controls;
  for (const AddedToken& token : parts_.added) {
    contents[static_cast<std::size_t>(token.id)] = content_of(token);
    size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    if (token.special) controls.push_back(token.id);
  }
  is_control_.resize(size);
  for (const std::int32_t id : controls) is_control_[static_cast<std::size_t>(id)] = true;
  texts_.reserve(spelled.num_bytes());
  std::string buffer;
  for (std::size_t id = 0; id < size; ++id) {
    const auto content = contents.find(id);
    if (!spelled.has(id) && content == contents.end()) continue;
    if (texts_.num_bytes() > kMaxTextBytes)
      throw DataError(fmt::format("{}: the decoder makes more than {} bytes of the tokens; use another tokenizer", parts_.source,
                                  kMaxTextBytes));
    texts_.add(id, changed(content != contents.end() ? content->second : spelled[id], parts_.of_token, &buffer));
  }
  for (const auto& ids : {parts_.special.before, parts_.special.after})
    for (const std::int32_t id : ids)
      if (!texts_.has(static_cast<std::size_t>(id)))
        throw DataError(fmt::format("{}: the post-processor adds id {}, which no token has; use the files of one tokenizer",
                                    parts_.source, id));
  settle_special();
  fingerprint_ = fingerprint_of(parts_, texts_);
  first_ = added_where(false);
  normalized_ = added_where(true);
  const std::size_t num_tokens = parts_.tokens.size();
  model_ = parts_.is_ranks ? std::make_unique<BpeModel>(std::move(parts_.tokens), controls)
                           : std::make_unique<BpeModel>(std::move(parts_.tokens), parts_.merges, parts_.rules, controls);
  parts_.tokens = TokenTexts();
  parts_.merges = {};
  describe();
  description_.push_back(fmt::format("{}; {} tokens, {} merges", line_of_model(parts_), num_tokens, model_->num_merges()));
}

void ChainTokenizer::settle_special() {
  SpecialIds& special = parts_.special;
  const auto id_of = [&](std::string_view content) -> std::optional<std::int32_t> {
    const auto added = std::ranges::find(parts_.added, content, &AddedToken::content);
    const std::int32_t id = added != parts_.added.end() ? added->id : parts_.tokens.find(content);
    return id < 0 ? std::nullopt : std::optional(id);
  };
  special.bos = id_of(parts_.bos), special.pad = id_of(parts_.pad);
  for (const std::string& eos : parts_.eos)
    if (const std::optional<std::int32_t> id = id_of(eos)) special.eos.push_back(*id);
  special.eod = !special.eos.empty() ? special.eos.front() : id_of(kEndOfDocument);
  if (special.eos.empty() && special.eod) special.eos = {*special.eod};
}

// A normalized token is looked for, and decoded, as the normalizers leave its content.
std::string ChainTokenizer::content_of(const AddedToken& token) const {
  std::string buffer;
  return token.normalized ? std::string(parts_.text.normalize(token.content, &buffer)) : token.content;
}

AddedTokens ChainTokenizer::added_where(bool normalized) const {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : parts_.added) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    tokens.back().content = content_of(token);
    if (tokens.back().content.empty())  // the library finds nothing between any two characters, and parts them
      throw DataError(fmt::format("{}: the normalizers make nothing of the added token {}; give it \"normalized\": false",
                                  parts_.source, in_quotes(token.content)));
  }
  return AddedTokens(std::move(tokens));
}

void ChainTokenizer::describe() {
  const auto named = [&](std::int32_t id) { return fmt::format("{} ({})", in_quotes(token_text(id)), id); };
  const auto controls = std::ranges::count_if(parts_.added, &AddedToken::special);
  description_.push_back(fmt::format("kind {}", parts_.kind));
  description_.push_back(fmt::format("added tokens {}, {} of them control tokens", parts_.added.size(), controls));
  for (const std::string& step : parts_.steps) description_.push_back(step);
  for (const std::int32_t id : parts_.special.before) description_.push_back("before a text " + named(id));
  for (const std::int32_t id : parts_.special.after) description_.push_back("behind a text " + named(id));
  if (parts_.special.bos) description_.push_back("bos " + named(*parts_.special.bos));
  for (const std::int32_t id : parts_.special.eos) description_.push_back("eos " + named(id));
  if (parts_.special.pad) description_.push_back("pad " + named(*parts_.special.pad));
  description_.push_back(parts_.special.eod ? "end of a document " + named(*parts_.special.eod) : "end of a document not known");
}

std::string ChainTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t& id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw DataError(
          fmt::format("token id {}: outside the vocabulary of tokenizer \"{}\" (0 .. {}); decode with the tokenizer that "
                      "encoded it",
                      id, name(), vocab_size() - 1));
    }
    if (&id != ids.data()) bytes += parts_.between;
    bytes += token_text(id);
  }
  std::string buffer;
  return parts_.of_text.empty() ? bytes : std::string(changed(bytes, parts_.of_text, &buffer));
}

std::optional<std::int32_t> ChainTokenizer::find(std::string_view token) const {
  const auto added = std::ranges::find(parts_.added, token, &AddedToken::content);
  if (added != parts_.added.end()) return added->id;
  for (std::size_t id = 0; id < texts_.num_ids(); ++id)
    if (texts_.has(id) && texts_[id] == token) return static_cast<std::int32_t>(id);
  return std::nullopt;
}

ChainEncoder::ChainEncoder(const ChainTokenizer& tokenizer) : tokenizer_(tokenizer), worker_(tokenizer.model()) {}

void ChainEncoder::encode(std::string_view text, std::vector<std::int32_t>* ids, const TextRule& rule) {
  first_control_.reset();
  if (valid_prefix(text) != text.size()) {
    num_replaced_ += replace_ill_formed(text, &repaired_);
    text = repaired_;
  }
  worker_.take_controls(rule.specials == Specials::kParsed && rule.plain.empty());
  const SpecialIds& special = tokenizer_.special_ids();
  const auto put_around = [&](const std::vector<std::int32_t>& around, std::size_t end) {
    if (rule.around == Around::kLeftOut) return;
    ids->insert(ids->end(), around.begin(), around.end());
    if (rule.ends != nullptr) rule.ends->insert(rule.ends->end(), around.size(), end);
  };
  if (ids->empty()) ids->reserve(text.size() / 3);  // most texts have no more
  put_around(special.before, 0);
  Call call{text, ids, rule, rule.ends == nullptr ? 0 : ids->size() - rule.ends->size()};
  if (tokenizer_.first().is_empty()) {
    if (!text.empty()) encode_stretch(call, text);
  } else {
    tokenizer_.first().cut(
        text, [&](const AddedToken& token, std::string_view own) { return counts(call, token, own); },
        [&](const AddedToken& token, std::string_view covers) {
          const auto begin = static_cast<std::size_t>(covers.data() - text.data());
          take(call, token, begin, begin + covers.size());
        },
        [&](std::string_view stretch) { encode_stretch(call, stretch); });
  }
  put_around(special.after, text.size());
}

bool ChainEncoder::counts(Call& call, const AddedToken& token, std::string_view own) const {
  if (!token.special) return true;
  if (call.rule.specials == Specials::kPlain) return false;
  if (call.rule.plain.empty()) return true;
  const auto begin = static_cast<std::size_t>(own.data() - call.text.data()), end = begin + own.size();
  while (call.next_plain < call.rule.plain.size() && call.rule.plain[call.next_plain].end <= begin) ++call.next_plain;
  return call.next_plain == call.rule.plain.size() || call.rule.plain[call.next_plain].begin >= end;
}

void ChainEncoder::take(Call& call, const AddedToken& token, std::size_t begin, std::size_t end) {
  call.ids->push_back(token.id);
  if (call.rule.ends != nullptr) push_end(call, end);
  if (!token.special) return;
  ++num_controls_;
  if (!first_control_) first_control_ = {begin, token.id};
}

// Ends ascend also where it is not known exactly what became of which bytes.
void ChainEncoder::push_end(Call& call, std::size_t end) {
  call.end = std::max(call.end, std::min(end, call.text.size()));
  call.rule.ends->push_back(call.end);
}

void ChainEncoder::encode_stretch(Call& call, std::string_view stretch) {
  const std::string_view text = tokenizer_.text().normalize(stretch, &normalized_);
  if (tokenizer_.normalized().is_empty()) return encode_normalized(call, text, stretch);
  // Where the text was changed, what stands in it is known to be somewhere in the stretch.
  const bool is_same = text.data() == stretch.data() && text.size() == stretch.size();
  const auto place = [&](std::string_view part) { return is_same ? part : stretch; };
  tokenizer_.normalized().cut(
      text, [&](const AddedToken& token, std::string_view own) { return counts(call, token, place(own)); },
      [&](const AddedToken& token, std::string_view covers) {
        const auto begin = static_cast<std::size_t>(place(covers).data() - call.text.data());
        take(call, token, begin, begin + place(covers).size());
      },
      [&](std::string_view part) { encode_normalized(call, part, place(part)); });
}

// `text` is what became of the stretch, or of a part of it.
void ChainEncoder::encode_normalized(Call& call, std::string_view text, std::string_view stretch) {
  tokenizer_.text().split(text, [&](std::string_view of, std::size_t begin, std::span<const PieceScanner::Piece> pieces) {
    num_unknown_ += worker_.encode(of, begin, pieces, call.ids);
  });
  if (call.rule.ends != nullptr) set_ends(call, text, stretch);
}

// By the bytes that the tokens stand for. Where a text was changed before, parts that begin with ASCII, which no normal form joins
// to what stands before, are compared one by one, and a token ends in a changed one at its end.
void ChainEncoder::set_ends(Call& call, std::string_view text, std::string_view stretch) {
  const auto first = static_cast<std::size_t>(stretch.data() - call.text.data());
  const bool is_same = text.data() == stretch.data();
  std::size_t in_text = 0, part_begin = 0, part_end = 0, text_begin = 0, text_end = is_same ? text.size() : 0;
  bool part_is_same = is_same;
  if (is_same) part_end = stretch.size();
  while (call.before + call.rule.ends->size() < call.ids->size()) {
    in_text += tokenizer_.token_text((*call.ids)[call.before + call.rule.ends->size()]).size();
    while (in_text > text_end && part_end < stretch.size()) {
      text_begin = text_end, part_begin = part_end++;
      while (part_end < stretch.size() && static_cast<unsigned char>(stretch[part_end]) >= 0x80) ++part_end;
      const std::string_view part = stretch.substr(part_begin, part_end - part_begin);
      std::string buffer;
      const std::string_view made = tokenizer_.text().normalize(part, &buffer);
      text_end = text_begin + made.size();
      part_is_same = made == part;
    }
    const std::size_t end = part_is_same ? part_begin + (in_text - text_begin) : part_end;
    const bool is_last = call.before + call.rule.ends->size() + 1 == call.ids->size();
    push_end(call, first + (is_last && in_text >= text.size() ? stretch.size() : std::min(end, part_end)));
  }
}

}  // namespace

std::string line_of_split(std::string_view pattern, std::string_view behavior, bool invert) {
  if (pattern == kGpt2Spelled) pattern = kGpt2Pattern;
  return fmt::format("split {}, {}{}", in_quotes(pattern, pattern.size()), behavior, invert ? ", inverted" : "");
}

std::unique_ptr<Tokenizer> make_chain_tokenizer(ChainParts parts) { return std::make_unique<ChainTokenizer>(std::move(parts)); }

}  // namespace trident
