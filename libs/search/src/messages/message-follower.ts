import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Lifecycle, Logger } from '@rookery/platform';
import { Follower, Notifier, saveCursor } from '@rookery/replication';
import { indexCursor } from '../migrations/index.js';
import { messageOfRow } from './message-index.js';
import { type IndexedMessage, indexMessages, type RawEventRow, selectEventsBetween } from './message-index.query.js';
import { searchableTypes } from './searchable.js';

const stream = 'events';
/** What comes meanwhile shares a transaction. Whoever searches cuts it short. */
const pauseMs = 250;
const maxEvents = 500;
/** A batch ends with the event that reaches this: texts are of any length. */
const maxWords = 20_000;
/** Positions that are looked through at a time, whether they hold something to find or not. */
const maxPositions = 10_000;
/** A search waits no longer, and goes without the latest. */
const maxWaitMs = 2_000;
/** Batches store the cursor themselves: this is for stretches in which there was nothing to index. */
const saveEveryMs = 60_000;

interface Waiting {
  readonly position: number;
  readonly resume: () => void;
}

/** Brings what is said into the index of messages, soon after it was stored and in batches: sending pays nothing for it. */
@Injectable()
export class MessageFollower implements OnModuleInit {
  readonly #follower: Follower;
  readonly #waiting = new Set<Waiting>();
  #isRunning = false;
  #reached = 0;
  #pause = new AbortController();

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#follower = new Follower({
      name: indexCursor,
      stream,
      ...{ database, notifier, clock, logger },
      saveEveryMs,
      advance: (after, upTo) => this.#advance(after, upTo),
    });
  }

  onModuleInit(): void {
    if (!this.config.get('enable_search')) return;
    this.lifecycle.on('streams', { name: 'message index', start: () => this.start(), stop: () => this.stop() });
  }

  /** Goes on where it stopped. */
  async start(): Promise<void> {
    this.#isRunning = true;
    await this.#follower.start();
    this.#reached = Math.max(this.#reached, this.#follower.position);
  }

  /** Lets the batch in hand finish. */
  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#pause.abort();
    for (const { resume } of this.#waiting) resume();
    await this.#follower.stop();
  }

  /** Waits until everything that could be read when it was called is in the index; for two seconds at most. */
  async caughtUp(): Promise<void> {
    const position = this.notifier.position(stream);
    if (!this.#isRunning || this.#reached >= position) return;
    await new Promise<void>((resolve) => {
      const timer = this.clock.after(maxWaitMs, () => waiting.resume());
      const waiting: Waiting = {
        position,
        resume: () => {
          timer.cancel();
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      this.#waiting.add(waiting);
      this.#pause.abort();
    });
  }

  async #advance(after: number, upTo: number): Promise<number> {
    this.#reached = await this.#index(after, Math.min(upTo, after + maxPositions));
    for (const { position, resume } of this.#waiting) if (position <= this.#reached) resume();
    if (this.#isRunning && this.#waiting.size === 0) {
      this.#pause = new AbortController();
      await this.clock.sleep(pauseMs, this.#pause.signal);
    }
    return this.#reached;
  }

  async #index(after: number, upTo: number): Promise<number> {
    const rows = await selectEventsBetween(this.database, searchableTypes, after, upTo, maxEvents);
    const { messages, taken } = messagesOf(rows);
    const last = rows[taken - 1];
    const reached = last === undefined || (taken === rows.length && taken < maxEvents) ? upTo : last.stream_ordering;
    if (messages.length === 0) return reached;
    await this.database.write(
      async (tx) => {
        await indexMessages(tx, messages);
        await saveCursor(tx, indexCursor, reached);
      },
      { name: 'index_messages' },
    );
    return reached;
  }
}

/** As much of the rows as makes one batch. */
function messagesOf(rows: readonly RawEventRow[]): { readonly messages: IndexedMessage[]; readonly taken: number } {
  const messages: IndexedMessage[] = [];
  let taken = 0;
  for (let words = 0; taken < rows.length && words < maxWords; taken++) {
    const message = messageOfRow(rows[taken]!);
    if (message === undefined) continue;
    messages.push(message);
    words += message.words.length;
  }
  return { messages, taken };
}
