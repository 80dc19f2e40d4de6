import { AsyncResource } from 'node:async_hooks';
import { NOT_SPAM } from '@rookery/module-api';
import { readArguments, writeArguments, type WrittenArguments } from './thread-text.js';

// A module may change what it finds in its thread.
const { add, load, notify, or, store, wait, waitAsync } = Atomics;
const { setImmediate: afterATurn } = globalThis;
const now = performance.now.bind(performance);

/** So many questions are under way at a time; more go the other way. */
const slots = 32;
/** A longer question goes the other way, too. */
const slotBytes = 16_384;
/** As many threads as an integer has bits, without the one for its sign. */
const maxMembers = 31;
/** A thread's answer that is the last one rings. When they take longer, each does, so that none waits for another. */
const hurryMs = 5;
/**
 * A thread that was asked twice within this time stays where it is for the next question, which costs half of what its event loop does
 * to hear of one. It gives the event loop a turn no later than this, for what a module has of its own: timers and sockets are late by
 * no more.
 */
const restMs = 10;
/**
 * A thread whose event loop has nothing to wait for is given its turn behind the first answer after {@link restMs}, and without an
 * answer no later than this. What such a thread may have is timers that keep nothing awake.
 */
const idleRestMs = 2 * restMs;
/** So often a thread looks whether an answer that waits for nothing but promises is there. */
const maxTurns = 32;

/** As many bells as threads wait for. When there are no more, some wake that nobody asks. */
const bells = 256;

/** Bits of whom a question of many is put to, at the least: four. */
const askedByMany = 0b1111;

/**
 * Words of a slot: whom the question was put to, who has answered, who said what, whether each answer rings; its text, and how much
 * of that is the target, and the arguments behind it.
 */
const word = {
  ...{ asked: 0, done: 1, passed: 2, agreed: 3, each: 4 },
  ...{ bytes: 5, isAscii: 6, target: 7, json: 8 },
} as const;
/** A line of what processors share. */
const wordsPerSlot = 16;
const bell = slots * wordsPerSlot;
const firstBell = bell + wordsPerSlot;
const firstByte = (firstBell + bells) * 4;
/** Words of an entry in a thread's inbox: the slot, the number of the call there, and the thread's bit. */
const wordsPerEntry = 3;
const firstEntry = 3;
/** Words in front of them: which bell the thread waits for, how many questions were put there, and whether the thread rests. */
const inboxWord = { bell: 0, posted: 1, isResting: 2 } as const;

/** The memory that a server shares with the threads of its modules for questions, and that of one thread. */
export interface PollMemory {
  readonly board: SharedArrayBuffer;
  readonly inbox: SharedArrayBuffer;
}

/** Who is asked in a thread, seen from the server. */
export interface PollMember {
  readonly inbox: Int32Array;
  group: Group;
  readonly settle: (callId: number, value: unknown) => void;
}

/** Threads that were always asked together so far. They wait for one bell: to wake ten at once costs far less than one by one. */
interface Group {
  /** Its word on the board. */
  readonly bell: number;
  readonly members: Set<PollMember>;
}

/**
 * What one of several that are asked at once will say. No promise: those who are asked first are waited for, and then the others
 * have answered, too.
 */
export class PollAnswer {
  // No private names, which are slow until they are compiled well: each thread that is asked has one of these, each time.
  /** Whether there is nothing to wait for. */
  isThere = false;
  private hasFailed = false;
  private said: unknown = undefined;
  private listener: (() => void) | undefined = undefined;

  /** What was said, once it is there. @throws what the call failed with */
  get value(): unknown {
    if (this.hasFailed) throw this.said;
    return this.said;
  }

  /** Resolves when it is there. For one listener. */
  heard(): Promise<void> {
    return new Promise((resolve) => (this.listener = resolve));
  }

  /** To be told of the answer. */
  resolve(value: unknown): void {
    if (this.isThere) return;
    this.isThere = true;
    this.said = value;
    this.listener?.();
  }

  /** To be told that there is none. */
  reject(error: unknown): void {
    if (this.isThere) return;
    this.hasFailed = true;
    this.resolve(error);
  }
}

/** One question to several threads. */
class Poll {
  readonly members: { readonly member: PollMember; readonly callId: number }[] = [];
  /** Where it comes from. */
  readonly context = new AsyncResource('Poll');
  publishedAtMs = 0;
  /** By how much the server's clocks differ from the threads', as threads are told. Milliseconds. */
  time: readonly [day: number, steady: number] = [0, 0];
  /** Whether each answer rings by now. */
  isHurried = false;
  /** Bits of those whose answers were looked at. */
  seen = 0;

  constructor(
    readonly polls: Polls,
    readonly slot: number,
    readonly target: string,
    readonly given: readonly unknown[],
  ) {}

  /** Whether a call is this question. */
  isFor(polls: Polls, target: string, given: readonly unknown[]): boolean {
    if (this.polls !== polls || this.target !== target || this.members.length === maxMembers) return false;
    if (this.given.length !== given.length) return false;
    for (let i = 0; i < given.length; i++) if (this.given[i] !== given[i]) return false;
    return true;
  }
}

/** What is asked in one go now: nothing, the question, or something that has to go the other way. */
let oneGo: { poll: Poll | 'none' | undefined } | undefined;

/** Calls of the same callback in several threads that `work` makes, with the same arguments, travel as one. */
export function together(work: () => void): void {
  const before = oneGo;
  const mine: NonNullable<typeof oneGo> = (oneGo = { poll: undefined });
  try {
    work();
  } finally {
    oneGo = before;
    if (mine.poll instanceof Poll) mine.poll.polls.publish(mine.poll);
  }
}

/**
 * Questions that many threads are asked at once, and which nearly all of them answer with "pass": they lie in shared memory, written
 * once for all threads, and the answers are bits. Whoever answers last rings, so that the server wakes once for all. Any other answer
 * is a message, as are questions that hold more than events, contexts and plain values.
 */
export class Polls {
  readonly #board = new SharedArrayBuffer(firstByte + slots * slotBytes);
  readonly #words = new Int32Array(this.#board, 0, firstByte / 4);
  readonly #bytes = Buffer.from(this.#board);
  readonly #free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  readonly #bells = Array.from({ length: bells }, (_, i) => firstBell + bells - 1 - i);
  /** Those that were not asked yet. */
  readonly #newcomers: Group = { bell: this.#bells.pop()!, members: new Set() };
  readonly #underWay = new Set<Poll>();
  #isListening = false;
  #isClosed = false;
  #hurry: NodeJS.Timeout | undefined;

  /** Takes a thread in. @param settle told of its answers */
  member(settle: PollMember['settle']): { readonly memory: PollMemory; readonly member: PollMember } {
    const inbox = new SharedArrayBuffer((firstEntry + slots * wordsPerEntry) * 4);
    const group = this.#newcomers;
    const member: PollMember = { inbox: new Int32Array(inbox), group, settle };
    group.members.add(member);
    store(member.inbox, inboxWord.bell, group.bell);
    return { memory: { board: this.#board, inbox }, member };
  }

  /** The question that a call belongs to; `undefined` when it has to go the other way. */
  pollFor(target: string, given: readonly unknown[]): Poll | undefined {
    if (!oneGo || this.#isClosed) return undefined;
    const { poll } = oneGo;
    if (poll === undefined) oneGo.poll = this.#begin(target, given) ?? 'none';
    else if (poll === 'none' || !poll.isFor(this, target, given)) return undefined;
    return oneGo.poll === 'none' ? undefined : oneGo.poll;
  }

  #begin(target: string, given: readonly unknown[]): Poll | undefined {
    const args = this.#free.length > 0 ? writeArguments(given) : undefined;
    if (args === undefined) return undefined;
    const { json, pdus } = args;
    const text = target + json + pdus;
    const bytes = Buffer.byteLength(text);
    if (bytes > slotBytes) return undefined;
    const slot = this.#free.pop()!;
    const isAscii = bytes === text.length;
    this.#bytes.write(text, firstByte + slot * slotBytes, isAscii ? 'latin1' : 'utf8');
    const at = slot * wordsPerSlot;
    this.#words.fill(0, at, at + wordsPerSlot);
    this.#words[at + word.bytes] = bytes;
    this.#words[at + word.isAscii] = isAscii ? 1 : 0;
    this.#words[at + word.target] = target.length;
    this.#words[at + word.json] = json.length;
    return new Poll(this, slot, target, given);
  }

  /** Puts the question to its members. */
  publish(poll: Poll): void {
    const { slot, members } = poll;
    if (members.length === 0) return void this.#free.push(slot);
    poll.publishedAtMs = performance.now();
    this.#underWay.add(poll);
    store(this.#words, slot * wordsPerSlot + word.asked, 2 ** members.length - 1);
    for (let i = 0; i < members.length; i++) {
      const { member, callId } = members[i]!;
      const { inbox } = member;
      const posted = load(inbox, inboxWord.posted);
      const at = firstEntry + (posted & (slots - 1)) * wordsPerEntry;
      inbox[at] = slot;
      inbox[at + 1] = callId;
      inbox[at + 2] = 1 << i;
      store(inbox, inboxWord.posted, (posted + 1) | 0);
    }
    const { group } = members[0]!.member;
    const isGroup = group.members.size === members.length && members.every(({ member }) => member.group === group);
    // Nearly always.
    if (isGroup) ring(this.#words, group.bell);
    else this.#wake(members.map(({ member }) => member));
    this.#hurryLater();
    if (!this.#isListening) void this.#listen();
  }

  /** Tells a thread that a message waits for it, too. */
  nudge(member: PollMember): void {
    add(this.#words, member.group.bell, 1);
    if (load(member.inbox, inboxWord.isResting) === 1) this.#wake([member]);
  }

  /** Wakes threads. Others of their groups are parted from them, and woken for nothing this one time. */
  #wake(members: readonly PollMember[]): void {
    for (const group of new Set(members.map((member) => member.group))) {
      const those = new Set(members.filter((member) => member.group === group));
      if (those.size < group.members.size) this.#part(group, those);
      ring(this.#words, group.bell);
    }
  }

  #part(group: Group, those: ReadonlySet<PollMember>): void {
    const own = this.#bells.pop();
    if (own === undefined) return;
    const parted: Group = { bell: own, members: new Set(those) };
    for (const member of those) {
      group.members.delete(member);
      member.group = parted;
      store(member.inbox, inboxWord.bell, own);
    }
  }

  /** To be told of a thread that has ended: it answers nothing any more. */
  leave(member: PollMember): void {
    const { bell: itsBell, members } = member.group;
    if (members.delete(member) && members.size === 0 && member.group !== this.#newcomers) this.#bells.push(itsBell);
    for (const poll of this.#underWay) {
      const place = poll.members.findIndex((one) => one.member === member);
      if (place === -1) continue;
      or(this.#words, poll.slot * wordsPerSlot + word.done, 1 << place);
      this.#collect(poll);
    }
  }

  /** Ends listening. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#hurry);
    ring(this.#words, bell);
  }

  async #listen(): Promise<void> {
    this.#isListening = true;
    while (!this.#isClosed) {
      const heard = load(this.#words, bell);
      for (const poll of this.#underWay) this.#collect(poll);
      const next = waitAsync(this.#words, bell, heard);
      if (next.async) await next.value;
    }
  }

  /** Takes the answers that have come. */
  #collect(poll: Poll): void {
    const { slot, members } = poll;
    const at = slot * wordsPerSlot;
    const done = load(this.#words, at + word.done);
    const fresh = done & ~poll.seen;
    if (fresh === 0) return;
    poll.seen = done;
    const passed = load(this.#words, at + word.passed);
    const agreed = load(this.#words, at + word.agreed);
    for (let i = 0; i < members.length; i++) {
      const { member, callId } = members[i]!;
      const bit = 1 << i;
      if ((fresh & bit) === 0) continue;
      if ((passed & bit) !== 0) member.settle(callId, NOT_SPAM);
      else if ((agreed & bit) !== 0) member.settle(callId, true);
    }
    if (done !== 2 ** members.length - 1) return;
    this.#underWay.delete(poll);
    this.#free.push(slot);
  }

  #hurryLater(): void {
    this.#hurry ??= setTimeout(() => this.#hurryUp(), hurryMs).unref();
  }

  #hurryUp(): void {
    this.#hurry = undefined;
    const nowMs = performance.now();
    for (const poll of this.#underWay) {
      if (poll.isHurried) continue;
      if (nowMs - poll.publishedAtMs < hurryMs) {
        this.#hurryLater();
        continue;
      }
      poll.isHurried = true;
      store(this.#words, poll.slot * wordsPerSlot + word.each, 1);
      this.#collect(poll);
    }
  }
}

/** Wakes all that wait for a bell. */
function ring(words: Int32Array, itsBell: number): void {
  add(words, itsBell, 1);
  notify(words, itsBell);
}

/** A question as its thread carries it out. */
export interface PollCall {
  readonly callId: number;
  readonly target: string;
  /** Reads what it is asked. */
  args(): unknown[];
  /** Answers, if the value is one that has a bit. */
  pass(value: unknown): boolean;
  /** To be called when it was answered by a message. */
  told(): void;
}

const noTime = Promise.resolve();
const aTurnOfTheEventLoop = (): Promise<void> => new Promise((resolve) => void afterATurn(resolve));

/** A question that lies in shared memory. */
class AskedCall implements PollCall {
  constructor(
    private readonly words: Int32Array,
    private readonly at: number,
    private readonly bit: number,
    readonly callId: number,
    readonly target: string,
    private readonly given: WrittenArguments,
  ) {}

  args(): unknown[] {
    return readArguments(this.given);
  }

  pass(value: unknown): boolean {
    if (value !== NOT_SPAM && value !== true) return false;
    or(this.words, this.at + (value === true ? word.agreed : word.passed), this.bit);
    if (this.done()) ring(this.words, bell);
    return true;
  }

  told(): void {
    // What was answered before may count now.
    this.done();
    ring(this.words, bell);
  }

  /** Whether the server is to hear of it. */
  private done(): boolean {
    const { words, at, bit } = this;
    const asked = load(words, at + word.asked);
    const missing = asked & ~(or(words, at + word.done, bit) | bit);
    const allButOne = missing & (missing - 1);
    // Where many are asked, the server is woken while the last two answer: that takes it as long.
    const isNearlyAll = asked >= askedByMany && (allButOne & (allButOne - 1)) === 0;
    return missing === 0 || isNearlyAll || load(words, at + word.each) === 1;
  }
}

/** What a thread does with questions. */
export interface PollAnswerer {
  /** Does not throw. */
  readonly carryOut: (call: PollCall) => void;
  /** Whether it was answered what it asked, and has answered what it was asked. */
  readonly isAtRest: () => boolean;
  /** Whether its event loop has something to do, or to wait for, beside questions. */
  readonly isBusy: () => boolean;
  /** Told how long the thread lay still where its event loop could not tell. */
  readonly rested: (ms: number) => void;
}

/** Reads in a module's thread what the server asks there. Until the thread ends. */
export async function answerPolls(
  { board, inbox: shared }: PollMemory,
  { carryOut, isAtRest, isBusy, rested }: PollAnswerer,
): Promise<void> {
  const words = new Int32Array(board, 0, firstByte / 4);
  const bytes = Buffer.from(board);
  const inbox = new Int32Array(shared);
  const take = (read: number): void => {
    const entry = firstEntry + (read & (slots - 1)) * wordsPerEntry;
    const [slot, callId, bit] = [inbox[entry]!, inbox[entry + 1]!, inbox[entry + 2]!];
    const at = slot * wordsPerSlot;
    const from = firstByte + slot * slotBytes;
    const encoding = words[at + word.isAscii] === 1 ? 'latin1' : 'utf8';
    const text = bytes.toString(encoding, from, from + words[at + word.bytes]!);
    const firstOfArguments = words[at + word.target]!;
    const firstOfPdus = firstOfArguments + words[at + word.json]!;
    const given = { json: text.slice(firstOfArguments, firstOfPdus), pdus: text.slice(firstOfPdus) };
    carryOut(new AskedCall(words, at, bit, callId, text.slice(0, firstOfArguments), given));
  };
  let [turnedAtMs, askedAtMs, limitMs] = [0, 0, restMs];
  for (let read = 0; ;) {
    const ownBell = load(inbox, inboxWord.bell);
    const heard = load(words, ownBell);
    const posted = load(inbox, inboxWord.posted);
    if (read !== posted) {
      for (; read !== posted; read = (read + 1) | 0) take(read);
      for (let turns = 0; turns < maxTurns && !isAtRest(); turns++) await noTime;
      let nowMs = now();
      const isOften = nowMs - askedAtMs < restMs;
      askedAtMs = nowMs;
      if (isOften && nowMs - turnedAtMs >= restMs && isAtRest() && !isBusy()) {
        // Without waiting for anything, a turn costs a fraction of one that the next question has to end.
        await aTurnOfTheEventLoop();
        nowMs = turnedAtMs = now();
        limitMs = idleRestMs;
      }
      const leftMs = turnedAtMs + limitMs - nowMs;
      if (isOften && leftMs > 0 && isAtRest()) {
        store(inbox, inboxWord.isResting, 1);
        wait(words, ownBell, heard, leftMs);
        store(inbox, inboxWord.isResting, 0);
        rested(now() - nowMs);
        if (load(inbox, inboxWord.posted) !== read) continue;
      }
    }
    const next = waitAsync(words, ownBell, heard);
    await (next.async ? next.value : aTurnOfTheEventLoop());
    turnedAtMs = now();
    // With the shorter one, most rests of a thread that is asked all the time would end in here, and few behind an answer.
    limitMs = isBusy() ? restMs : idleRestMs;
  }
}
