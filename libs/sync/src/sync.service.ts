import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { SyncPositions } from '@rookery/e2ee';
import { type PresenceName, PresenceService } from '@rookery/ephemeral';
import { Clock } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import type { SyncFilter } from '@rookery/matrix-types';
import { FullAnswers } from './request/full-answers.js';
import {
  formatSyncToken,
  parseSyncToken,
  type SyncToken,
  tokenStreams,
  type TokenStream,
} from './request/sync-token.js';
import type { StateAfter, SyncContext } from './sync-context.js';
import { type SyncResponse, SyncResponses } from './sync-responses.js';

/** What a client asks for. */
export interface SyncRequest {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly since: SyncToken | undefined;
  readonly filter: SyncFilter;
  readonly fullState: boolean;
  readonly useStateAfter: StateAfter;
  /** How the user counts as present while this sync goes on. */
  readonly setPresence: PresenceName;
  /** How long to wait for news, milliseconds. */
  readonly timeoutMs: number;
  /** The answer goes out as it is: if it tells everything, its `rooms` may be {@link WrittenRooms}. */
  readonly asText?: boolean;
}

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
};

/** How long to wait for other processes' news before answering with what there is, milliseconds. */
const catchUpMs = 1_000;

/** Answers syncs: at once where there is news, else when there is, or when the time is over. */
@Injectable()
export class SyncService {
  readonly #full: FullAnswers;

  constructor(
    private readonly responses: SyncResponses,
    private readonly notifier: Notifier,
    private readonly presence: PresenceService,
    private readonly clock: Clock,
    positions: SyncPositions,
  ) {
    positions.use(parseSyncToken);
    this.#full = new FullAnswers(clock);
  }

  /** Where every stream stands now. */
  currentToken(): SyncToken {
    return Object.fromEntries(
      tokenStreams.map((stream) => [stream, this.notifier.position(streamNames[stream])]),
    ) as SyncToken;
  }

  /**
   * @param signal ends the wait early, with an empty answer
   * @spec client-server-api#get_matrixclientv3sync
   */
  async sync(request: SyncRequest, signal: AbortSignal): Promise<JsonObject> {
    const ended = this.presence.syncing(request.userId, request.deviceId, request.setPresence);
    try {
      return await this.#answer(request, signal);
    } finally {
      ended();
    }
  }

  async #answer(request: SyncRequest, signal: AbortSignal): Promise<JsonObject> {
    const deadlineMs = this.clock.monotonicMs() + request.timeoutMs;
    const mayWait = request.since !== undefined && !request.fullState;
    await this.#caughtUp(request.since, signal);
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait =
        mayWait && leftMs > 0 ? this.notifier.begin(request.userId, { timeoutMs: leftMs, signal }) : undefined;
      try {
        const context = this.#context(request);
        const asText = request.asText === true && !mayWait;
        const build = (): Promise<SyncResponse> => this.responses.build(context, asText);
        const response = await (mayWait ? build() : this.#full.run(build));
        const answer = { next_batch: formatSyncToken(response.next), ...response.body };
        if (!response.isEmpty || wait === undefined) return answer;
        if ((await wait.outcome) !== 'news') return answer;
      } finally {
        wait?.end();
      }
    }
  }

  #context(request: SyncRequest): SyncContext {
    const { userId, deviceId, isGuest, since, filter, fullState, useStateAfter } = request;
    const now = this.currentToken();
    return {
      userId,
      deviceId,
      deviceKey: `${userId}\n${deviceId ?? ''}`,
      isGuest,
      since,
      // A token from a process that is ahead must not make time run backwards.
      now: since === undefined ? now : mapToken((stream) => Math.max(now[stream], since[stream])),
      filter,
      fullState,
      useStateAfter,
    };
  }

  /** Waits a little until this process has heard of everything that the client already knows. */
  async #caughtUp(since: SyncToken | undefined, signal: AbortSignal): Promise<void> {
    if (since === undefined) return;
    await this.notifier.reached(streamNames.events, since.events, { timeoutMs: catchUpMs, signal });
  }
}

function mapToken(position: (stream: TokenStream) => number): SyncToken {
  return Object.fromEntries(tokenStreams.map((stream) => [stream, position(stream)])) as SyncToken;
}
