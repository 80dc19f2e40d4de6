import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Config } from '@rookery/platform';
import { defineRole, FollowerSharing, type Role, saveCursor, type SharedFollower } from '@rookery/replication';
import { indexCursor } from '../migrations/index.js';
import { messageOfRow } from './message-index.js';
import { type IndexedMessage, indexMessages, type RawEventRow, selectEventsBetween } from './message-index.query.js';
import { searchableTypes } from './searchable.js';

const stream = 'events';
/** What comes meanwhile shares a transaction. */
const pauseMs = 250;
const maxEvents = 500;
/** A batch ends with the event that reaches this: texts are of any length. */
const maxWords = 20_000;
/** Positions that are looked through at a time, whether they hold something to find or not. */
const maxPositions = 10_000;
/** Batches store the cursor themselves: this is for stretches in which there was nothing to index. */
const saveEveryMs = 60_000;

/** The duty of bringing what is said into the index. */
export const messageIndexRole: Role = defineRole('message_index');

/**
 * Brings what is said into the index of messages, soon after it was stored and in batches: sending pays nothing for it. Events that are in
 * the index already may come again, and the cursor goes with them: nothing is missed, and nothing is in it twice, whoever follows.
 */
@Injectable()
export class MessageFollower implements OnModuleInit {
  #follower: SharedFollower | undefined;

  constructor(
    private readonly database: Database,
    private readonly sharing: FollowerSharing,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    if (!this.config.get('enable_search')) return;
    this.#follower = this.sharing.share({
      ...{ name: indexCursor, stream, role: messageIndexRole, pauseMs, saveEveryMs },
      advance: (after, upTo) => this.#index(after, Math.min(upTo, after + maxPositions)),
    });
  }

  /** Waits until everything that could be read when it was called is in the index; for two seconds at most. */
  async caughtUp(): Promise<void> {
    await this.#follower?.caughtUp();
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
      { name: 'index_messages', anyProcess: true },
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
