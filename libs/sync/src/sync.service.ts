import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { SyncPositions } from '@rookery/e2ee';
import { type PresenceName, PresenceService } from '@rookery/ephemeral';
import { Clock, Logger } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import type { SyncFilter } from '@rookery/matrix-types';
import type { DeviceMembers } from './request/device-members.js';
import { FullAnswers } from './request/full-answers.js';
import { KeptAnswers } from './request/kept-answers.js';
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
  profiles: 'profile_updates',
};

/** How long to wait for other processes' news before answering with what there is, milliseconds. */
const catchUpMs = 1_000;

/** Answers syncs: at once where there is news, else when there is, or when the time is over. */
@Injectable()
export class SyncService {
  readonly #full: FullAnswers;
  #hasWarned = false;

  constructor(
    private readonly responses: SyncResponses,
    private readonly notifier: Notifier,
    private readonly presence: PresenceService,
    private readonly clock: Clock,
    private readonly logger: Logger,
    positions: SyncPositions,
    private readonly kept: KeptAnswers,
  ) {
    positions.port.give((text) => this.#upToHead(parseSyncToken(text)));
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
      // Else the first thing that a client would wait for and get is its own presence.
      if (request.since === undefined) await this.presence.arrived(request.userId);
      return await this.#answer(request, signal);
    } finally {
      ended();
    }
  }

  /**
   * A token from a client as far as it can be one: positions beyond the heads of the streams, which a database that was put
   * back to an earlier day does not know, become the heads. Of what such a client has got to its device nothing is known.
   */
  async placed(since: SyncToken, signal: AbortSignal): Promise<SyncToken> {
    const ahead = (): TokenStream[] => {
      const head = this.currentToken();
      return tokenStreams.filter((stream) => since[stream] > head[stream]);
    };
    // Another process may have given it, and be ahead of this one.
    await Promise.all(
      ahead().map((stream) =>
        this.notifier.reached(streamNames[stream], since[stream], { timeoutMs: catchUpMs, signal }),
      ),
    );
    const streams = ahead();
    if (streams.length === 0) return since;
    if (!this.#hasWarned) {
      this.#hasWarned = true;
      this.logger.warn(
        'A client syncs from the future: it goes on from now. After the database was put back, run "rookery restore adopt" first',
        { streams },
      );
    }
    return { ...this.#upToHead(since), toDevice: 0 };
  }

  async #answer(asked: SyncRequest, signal: AbortSignal): Promise<JsonObject> {
    const deadlineMs = this.clock.monotonicMs() + asked.timeoutMs;
    const request = asked.since === undefined ? asked : { ...asked, since: await this.placed(asked.since, signal) };
    const mayWait = request.since !== undefined && !request.fullState;
    if (!mayWait && request.asText === true) return this.#whole(request, signal);
    const members = await this.#membersOf(request);
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait =
        mayWait && leftMs > 0 ? this.notifier.begin(request.userId, { timeoutMs: leftMs, signal }) : undefined;
      try {
        const context = this.#context(request, members);
        const build = (): Promise<SyncResponse> => this.responses.build(context, false);
        const response = await (mayWait ? build() : this.#full.run(build));
        const answer = { next_batch: formatSyncToken(response.next), ...response.body };
        if (!response.isEmpty || wait === undefined) return answer;
        if ((await wait.outcome) !== 'news') return answer;
      } finally {
        wait?.end();
      }
    }
  }

  /** An answer that tells everything. It takes long: a client that did not wait for it finds it when it asks again. */
  #whole(request: SyncRequest, signal: AbortSignal): Promise<JsonObject> {
    const { userId, deviceId, isGuest, since, filter, fullState, useStateAfter } = request;
    const asked = [deviceId, isGuest, since, filter, fullState, useStateAfter];
    const make = async (): Promise<JsonObject> => {
      const members = await this.#membersOf(request);
      const response = await this.#full.run(() => this.responses.build(this.#context(request, members), true));
      return { next_batch: formatSyncToken(response.next), ...response.body };
    };
    return this.kept.get(userId, asked, signal, make);
  }

  #context(request: SyncRequest, lazyMembers: DeviceMembers): SyncContext {
    const { userId, deviceId, isGuest, since, filter, fullState, useStateAfter } = request;
    return {
      userId,
      deviceId,
      lazyMembers,
      isGuest,
      since,
      now: this.currentToken(),
      filter,
      fullState,
      useStateAfter,
    };
  }

  /** What the device has been sent, once it is known that it comes back from where it stands. */
  async #membersOf({ userId, deviceId, since, filter }: SyncRequest): Promise<DeviceMembers> {
    const members = this.responses.membersOf(`${userId}\n${deviceId ?? ''}`, since, filter);
    await members.begin();
    return members;
  }

  #upToHead(token: SyncToken): SyncToken {
    const head = this.currentToken();
    return mapToken((stream) => Math.min(head[stream], token[stream]));
  }
}

function mapToken(position: (stream: TokenStream) => number): SyncToken {
  return Object.fromEntries(tokenStreams.map((stream) => [stream, position(stream)])) as SyncToken;
}
