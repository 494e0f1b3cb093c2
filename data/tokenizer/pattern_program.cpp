#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/json_reader.h"
#include "data/tokenizer/pattern.h"

namespace trident {
namespace {

constexpr std::size_t kMaxInstructions = 16384;
constexpr std::uint64_t kStepsPerByte = 64;
constexpr std::size_t kMinBytes = 256;                // shorter texts may take as many steps as one of this length
constexpr std::size_t kBytesAhead = std::size_t{1} << 20;   // bytes beyond the covered ones whose steps may be spent early
constexpr std::size_t kMaxFrames = std::size_t{1} << 22;    // 96 MiB

}  // namespace

PatternProgram::PatternProgram(const Pattern& pattern, std::string_view text, std::string_view where)
    : text_(text), where_(where), sets_(pattern.sets) {
  compile(pattern.root);
  emit({.op = Op::kDone});
  for (Instruction& it : instructions_)
    while (it.op == Op::kSplit && instructions_[it.to].op == Op::kJump) it.to = instructions_[it.to].to;
}

std::uint32_t PatternProgram::emit(const Instruction& instruction) {
  if (instructions_.size() == kMaxInstructions)
    throw DataError(fmt::format("{}: pattern {}: too long with its repeats written out, more than {} instructions; use smaller "
                                "counts", where_, in_quotes(text_, 200), kMaxInstructions));
  instructions_.push_back(instruction);
  return here() - 1;
}

void PatternProgram::compile(const PatternNode& node) {
  using Kind = PatternNode::Kind;
  switch (node.kind) {
    case Kind::kSet: emit({.op = Op::kSet, .set = static_cast<std::uint32_t>(node.set)}); break;
    case Kind::kAnchor: emit({.op = Op::kAnchor, .anchor = node.anchor}); break;
    case Kind::kSequence:
      for (const PatternNode& part : node.parts) compile(part);
      break;
    case Kind::kAlternatives: compile_alternatives(node, false); break;
    case Kind::kRepeat: compile_repeat(node); break;
    case Kind::kAtomic:
    case Kind::kLook: {
      const PatternNode& inside = node.parts.front();
      const std::uint32_t begin =
          emit({.op = node.kind == Kind::kLook ? Op::kLook : Op::kAtomic, .negative = node.negative});
      if (node.behind) compile_alternatives(inside, true);
      else compile(inside);
      emit({.op = Op::kDone});
      instructions_[begin].to = here();
      break;
    }
  }
}

// Behind a place each alternative first goes back by its own length.
void PatternProgram::compile_alternatives(const PatternNode& node, bool behind) {
  const auto one = [&](const PatternNode& alternative) {
    if (behind) emit({.op = Op::kBack, .min = static_cast<std::uint32_t>(alternative.lengths().least)});
    compile(alternative);
  };
  if (node.kind != PatternNode::Kind::kAlternatives) return one(node);
  std::vector<std::uint32_t> jumps;
  for (std::size_t i = 0; i < node.parts.size(); ++i) {
    if (i + 1 == node.parts.size()) {
      one(node.parts[i]);
      break;
    }
    const std::uint32_t split = emit({.op = Op::kSplit});
    one(node.parts[i]);
    jumps.push_back(emit({.op = Op::kJump}));
    instructions_[split].to = here();
  }
  for (const std::uint32_t jump : jumps) instructions_[jump].to = here();
}

void PatternProgram::compile_repeat(const PatternNode& node) {
  const PatternNode& inside = node.parts.front();
  if (inside.kind == PatternNode::Kind::kSet) {
    emit({.op = Op::kRun, .repeat = node.repeat, .set = static_cast<std::uint32_t>(inside.set), .min = node.min, .max = node.max});
    return;
  }
  std::optional<std::uint32_t> atomic;
  if (node.repeat == RepeatKind::kPossessive) atomic = emit({.op = Op::kAtomic});
  const bool lazy = node.repeat == RepeatKind::kLazy;
  for (std::uint32_t i = 0; i < node.min; ++i) compile(inside);
  // A split goes on with what follows it first. A lazy repeat jumps out first and has the repetition as its second choice.
  std::vector<std::uint32_t> exits;
  const auto may_leave = [&] {
    const std::uint32_t split = emit({.op = Op::kSplit});
    if (lazy) {
      exits.push_back(emit({.op = Op::kJump}));
      instructions_[split].to = here();
    } else {
      exits.push_back(split);
    }
  };
  if (node.max == PatternNode::kNoMax) {
    const std::uint32_t loop = here();
    may_leave();
    compile(inside);
    emit({.op = Op::kJump, .to = loop});
  } else {
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      may_leave();
      compile(inside);
    }
  }
  for (const std::uint32_t exit : exits) instructions_[exit].to = here();
  if (atomic) {
    emit({.op = Op::kDone});
    instructions_[*atomic].to = here();
  }
}

std::optional<std::size_t> PatternProgram::Matcher::match_at(std::size_t begin) {
  covered_ = std::max(covered_, begin);
  frames_.clear();
  return run(0, begin);
}

// Runs until kDone. What it leaves in frames_ is dropped: a match, an atomic group and a look are not entered again.
std::optional<std::size_t> PatternProgram::Matcher::run(std::uint32_t at, std::size_t place) {
  const std::size_t base = frames_.size();
  while (true) {
    const Instruction& it = program_.instructions_[at];
    bool fits = true;
    ++at;
    switch (it.op) {
      case Op::kSet: {
        const std::size_t size = place < text_.size() ? program_.sets_[it.set].size_at(text_, place) : 0;
        fits = size > 0;
        place += size;
        count(fits);
        break;
      }
      case Op::kRun: fits = take_run(at - 1, &place); break;
      case Op::kSplit:
        count(1);
        // A choice that ends at once is taken whenever it is gone back to: those below it never are.
        if (program_.instructions_[it.to].op == Op::kDone) frames_.resize(base);
        push({.at = it.to, .left = 0, .low = place, .high = place});
        break;
      case Op::kJump: at = it.to; break;
      case Op::kAnchor:
        fits = holds(it.anchor, place);
        count(fits);
        break;
      case Op::kAtomic: {
        count(1);
        const auto end = run(at, place);
        fits = end.has_value();
        place = end.value_or(place);
        at = it.to;
        break;
      }
      case Op::kLook:
        count(1);
        fits = run(at, place).has_value() != it.negative;
        at = it.to;
        break;
      case Op::kBack:
        for (std::uint32_t i = 0; i < it.min && fits; ++i) {
          fits = place > 0;
          if (fits) place = character_before(text_, place);
        }
        count(it.min);
        break;
      case Op::kDone: frames_.resize(base); return place;
    }
    if (!fits && !back_out(base, &at, &place)) return std::nullopt;
  }
}

// Takes the run that instruction `at` stands for, and leaves a frame if it may end elsewhere.
bool PatternProgram::Matcher::take_run(std::uint32_t at, std::size_t* place) {
  const Instruction& it = program_.instructions_[at];
  const CharSet& set = program_.sets_[it.set];
  const std::uint32_t most = it.repeat == RepeatKind::kLazy ? it.min : it.max;
  std::uint32_t times = 0;
  std::size_t end = *place, low = *place;
  for (; times < most && end < text_.size(); ++times) {
    const std::size_t size = set.size_at(text_, end);
    if (size == 0) break;
    if (times == it.min) low = end;
    end += size;
  }
  count(times);
  if (times < it.min) return false;
  count(times == 0);  // many runs of nothing may follow one another
  if (times == it.min) low = end;
  if (it.repeat == RepeatKind::kLazy) {
    count(1);
    if (it.max > it.min)
      push({.at = at, .left = it.max == PatternNode::kNoMax ? it.max : it.max - it.min, .low = end, .high = end});
  } else if (it.repeat == RepeatKind::kGreedy && end > low) {
    push({.at = at, .left = 0, .low = low, .high = end});
  }
  *place = end;
  return true;
}

// Goes back to the last choice above `base` that is left. One that is no run was counted when it was pushed.
bool PatternProgram::Matcher::back_out(std::size_t base, std::uint32_t* at, std::size_t* place) {
  while (frames_.size() > base) {
    Frame& frame = frames_.back();
    *at = frame.at;
    *place = frame.high;
    if (!frame.is_run()) {
      frames_.pop_back();
      return true;
    }
    count(1);
    const Instruction& it = program_.instructions_[frame.at];
    ++*at;
    if (it.repeat == RepeatKind::kLazy) {
      const std::size_t size = *place < text_.size() ? program_.sets_[it.set].size_at(text_, *place) : 0;
      if (size == 0) {
        frames_.pop_back();
        continue;
      }
      *place = frame.high += size;
      if (frame.left != PatternNode::kNoMax) --frame.left;
      if (frame.left == 0) frames_.pop_back();
      return true;
    }
    *place = frame.high = character_before(text_, frame.high);
    if (frame.high == frame.low) frames_.pop_back();
    return true;
  }
  return false;
}

bool PatternProgram::Matcher::holds(Anchor anchor, std::size_t place) const {
  switch (anchor) {
    case Anchor::kTextBegin: return place == 0;
    case Anchor::kTextEnd: return place == text_.size();
    case Anchor::kTextEndOrLastLine: return place == text_.size() || (place + 1 == text_.size() && text_[place] == '\n');
    case Anchor::kLineBegin: return place == 0 || (place < text_.size() && text_[place - 1] == '\n');
    case Anchor::kLineEnd: return place == text_.size() || text_[place] == '\n';
  }
  return false;
}

void PatternProgram::Matcher::push(const Frame& frame) {
  if (frames_.size() == kMaxFrames) give_up(fmt::format("keeps more than {} choices open", kMaxFrames));
  frames_.push_back(frame);
}

// Long texts are given up early: what is spent may not run far ahead of what is covered.
void PatternProgram::Matcher::count(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > kStepsPerByte * std::max(std::min(text_.size(), covered_ + kBytesAhead), kMinBytes))
    give_up(fmt::format("takes more than {} steps a byte", kStepsPerByte));
}

void PatternProgram::Matcher::give_up(const std::string& what) const {
  throw DataError(fmt::format("{}: pattern {}: {} in a text, at {}; use a pattern whose repeats do not contain or follow one "
                              "another",
                              program_.where_, in_quotes(program_.text_, 200), what, in_quotes(text_.substr(covered_, 200), 40)));
}

}  // namespace trident
