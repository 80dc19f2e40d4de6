import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';
import { defineRpc, type KeysOf, type Stream, Streams } from '@rookery/replication';
import { eventsStream } from '@rookery/rooms';
import { UserHooks } from '@rookery/users';
import { ConsentNotices } from './consent-notices.js';
import { LimitNotices } from './limit-notices.js';
import { ServerNotices } from './server-notices.service.js';

/** Most users who wait to be looked at; those left out come again with their next activity. */
const maxWaiting = 10_000;
const batchSize = 500;

/** Who was active lately at a process that cannot send them anything. */
const usersActive = defineRpc<readonly string[], null>('users_active');

/**
 * Sees to it that active users get the notices that are due, one user after the other, behind their requests: in the process that writes
 * events, whichever they ask.
 */
@Injectable()
export class NoticeDispatch implements OnModuleInit, OnModuleDestroy {
  readonly #waiting = new Set<string>();
  readonly #events: Stream<KeysOf<typeof eventsStream>>;
  #working: Promise<void> | undefined;
  #stopped = false;

  constructor(
    private readonly hooks: UserHooks,
    private readonly notices: ServerNotices,
    private readonly consent: ConsentNotices,
    private readonly limits: LimitNotices,
    private readonly logger: Logger,
    streams: Streams,
  ) {
    this.#events = streams.of(eventsStream);
  }

  onModuleInit(): void {
    this.#events.serve(usersActive, async (userIds) => {
      this.#take(userIds);
      return null;
    });
    this.hooks.active.subscribe({
      afterCommit: async ({ userIds }) => {
        if (!this.notices.enabled) return;
        if (this.#events.isWrittenHere) return this.#take(userIds);
        this.#events.atWriter(usersActive, userIds.slice(0, maxWaiting)).catch((err: unknown) => {
          this.logger.debug('Nobody could be told who was active', { err });
        });
      },
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopped = true;
    await this.#working;
  }

  #take(userIds: readonly string[]): void {
    if (!this.notices.enabled || this.#stopped) return;
    for (const userId of userIds) if (this.#waiting.size < maxWaiting) this.#waiting.add(userId);
    this.#start();
  }

  #start(): void {
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
      if (this.#waiting.size > 0 && !this.#stopped) this.#start();
    });
  }

  async #work(): Promise<void> {
    while (this.#waiting.size > 0 && !this.#stopped) {
      const userIds = [...this.#waiting].slice(0, batchSize);
      for (const userId of userIds) this.#waiting.delete(userId);
      for (const kind of [this.consent, this.limits]) {
        try {
          for (const userId of await kind.among(userIds)) if (!this.#stopped) await this.#tell(kind, userId);
        } catch (error) {
          this.logger.error('Could not find out who is to be sent server notices', { err: error });
        }
      }
    }
  }

  /** Never rejects: one user's trouble is not another's. */
  async #tell(kind: ConsentNotices | LimitNotices, userId: string): Promise<void> {
    try {
      await kind.tell(userId);
    } catch (error) {
      const reason = MatrixError.is(error) ? { reason: error.message } : { err: error };
      this.logger.warn('A server notice could not be sent', { userId, ...reason });
    }
  }
}
