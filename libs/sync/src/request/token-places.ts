import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, SkippedPositions } from '@rookery/database';
import { E2eePorts } from '@rookery/e2ee';
import { Logger } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { parseSyncToken, type SyncToken, tokenOf, tokenStreams, type TokenStream } from './sync-token.js';

/** Names of the streams on the bus, by their place in the token. */
const streamNames: Readonly<Record<TokenStream, string>> = {
  events: 'events',
  presence: 'presence',
  typing: 'typing',
  receipts: 'receipts',
  accountData: 'account_data',
  pushRules: 'push_rules',
  toDevice: 'to_device',
  deviceLists: 'device_lists',
  threads: 'thread_subscriptions',
  sticky: 'sticky_events',
  profiles: 'profile_updates',
};

/** What a client keeps by itself, and would keep for good where the database lost it. */
const keptStreams = ['events', 'accountData', 'pushRules'] as const satisfies readonly TokenStream[];

/** How long to wait for other processes' news before answering with what there is, milliseconds. */
const catchUpMs = 1_000;

/** A token from a client, as this server understands it. */
export interface PlacedToken {
  readonly token: SyncToken;
  /**
   * The database was put back to before the client got it: what the client holds may be what was lost, so it is told everything
   * that can have changed.
   */
  readonly isLost: boolean;
}

/** Where the streams stand, and where clients do that come with a token. */
@Injectable()
export class TokenPlaces implements OnModuleInit {
  #skipped: SkippedPositions | undefined;
  #hasWarned = false;

  constructor(
    private readonly notifier: Notifier,
    private readonly database: Database,
    private readonly logger: Logger,
    ports: E2eePorts,
  ) {
    ports.syncPositions.give((text) => this.#heardOf(parseSyncToken(text)));
  }

  async onModuleInit(): Promise<void> {
    this.#skipped = await SkippedPositions.load(this.database);
  }

  /** Where every stream stands now. */
  current(): SyncToken {
    return tokenOf((stream) => this.notifier.position(streamNames[stream]));
  }

  /** A token that is nowhere ahead of the streams. */
  upToHead(token: SyncToken): SyncToken {
    const head = this.current();
    return tokenOf((stream) => Math.min(head[stream], token[stream]));
  }

  /**
   * A token from a client as far as it can be one: positions beyond the heads of the streams, which a database that was put
   * back to an earlier day does not know, become the heads. Of what such a client has got to its device nothing is known.
   * @param signal ends the wait for other processes
   * @throws OnlyAtWriterError where another process writes: whether it has got that far cannot be told here
   */
  async placed(since: SyncToken, signal: AbortSignal): Promise<PlacedToken> {
    const isAhead = (stream: TokenStream): boolean => since[stream] > this.notifier.position(streamNames[stream]);
    let streams = tokenStreams.filter(isAhead);
    if (streams.length > 0) {
      // Another process may have given it, and be ahead of this one.
      await Promise.all(
        streams.map((stream) =>
          this.notifier.reached(streamNames[stream], since[stream], { timeoutMs: catchUpMs, signal }),
        ),
      );
      streams = tokenStreams.filter(isAhead);
      // Nobody may have been there to tell how far the streams are: whoever writes knows that there is no more.
      if (streams.length > 0) this.database.onlyAtWriter('a token that is ahead');
    }
    if (streams.length === 0) {
      const isLost = keptStreams.some((stream) => this.#skipped?.has(streamNames[stream], since[stream]));
      return { token: since, isLost };
    }
    if (!this.#hasWarned) {
      this.#hasWarned = true;
      this.logger.warn(
        'A client syncs from the future: it goes on from now. After the database was put back, run "rookery restore adopt" first',
        { streams },
      );
    }
    return { token: { ...this.upToHead(since), toDevice: 0 }, isLost: true };
  }

  /**
   * {@link upToHead} for whoever is told everything up to the token.
   * @throws OnlyAtWriterError where another process writes, which may be that far
   */
  #heardOf(token: SyncToken): SyncToken {
    const { deviceLists, events } = this.current();
    if (token.deviceLists > deviceLists || token.events > events) this.database.onlyAtWriter('a token that is ahead');
    return this.upToHead(token);
  }
}
