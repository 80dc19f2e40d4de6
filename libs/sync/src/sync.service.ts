import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { type PresenceName, PresenceService } from '@rookery/ephemeral';
import { Clock } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import type { SyncFilter } from '@rookery/matrix-types';
import { type DeviceMembers, LazyMemberMemories } from './request/device-members.js';
import { FullAnswers } from './request/full-answers.js';
import { KeptAnswers } from './request/kept-answers.js';
import { formatSyncToken, type SyncToken } from './request/sync-token.js';
import { type PlacedToken, TokenPlaces } from './request/token-places.js';
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
  /** The answer goes out as it is: what is long of it may be text, {@link WrittenRooms} or a {@link WrittenList}. */
  readonly asText?: boolean;
  /** Events of state name their rooms, and much state of a room is a {@link WrittenList}. */
  readonly stateNamesRoom?: boolean;
}

/** Answers syncs: at once where there is news, else when there is, or when the time is over. */
@Injectable()
export class SyncService {
  readonly #full: FullAnswers;

  constructor(
    private readonly responses: SyncResponses,
    private readonly notifier: Notifier,
    private readonly presence: PresenceService,
    private readonly clock: Clock,
    private readonly places: TokenPlaces,
    private readonly kept: KeptAnswers,
    private readonly memories: LazyMemberMemories,
  ) {
    this.#full = new FullAnswers(clock);
  }

  /** Where every stream stands now. */
  currentToken(): SyncToken {
    return this.places.current();
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

  /** Where a client stands that comes with a token. */
  placed(since: SyncToken, signal: AbortSignal): Promise<PlacedToken> {
    return this.places.placed(since, signal);
  }

  async #answer(asked: SyncRequest, signal: AbortSignal): Promise<JsonObject> {
    const deadlineMs = this.clock.monotonicMs() + asked.timeoutMs;
    const request = asked.since === undefined ? asked : await this.#placed(asked, asked.since, signal);
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

  async #placed(asked: SyncRequest, since: SyncToken, signal: AbortSignal): Promise<SyncRequest> {
    const { token, isLost } = await this.placed(since, signal);
    if (token === since && !isLost) return asked;
    return { ...asked, since: token, fullState: asked.fullState || isLost };
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
    const { userId, deviceId, isGuest, since, filter, fullState, useStateAfter, asText, stateNamesRoom } = request;
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
      asText,
      stateNamesRoom,
    };
  }

  /** What the device has been sent, once it is known that it comes back from where it stands. */
  async #membersOf({ userId, deviceId, since, filter }: SyncRequest): Promise<DeviceMembers> {
    const members = this.memories.of(
      `${userId}\n${deviceId ?? ''}`,
      since && { answer: since.events, home: since.home },
      filter.room.state,
    );
    await members.begin();
    return members;
  }
}
