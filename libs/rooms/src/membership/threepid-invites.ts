import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher, toStateView } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { EventPersister } from '../persistence/event-persister.js';
import { originOf } from '../sending/origin.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { MembershipService } from './membership.service.js';

/** An address that is to be invited through an identity server. */
export interface ThreepidInvite {
  readonly medium: string;
  readonly address: string;
  readonly idServer: string;
  readonly idAccessToken: string | undefined;
}

/** What an identity server knows, or keeps, about an address. */
export interface IdentityServers {
  /** The user bound to an address; `undefined` when there is none. */
  lookUp(invite: ThreepidInvite): Promise<string | undefined>;
  /** Leaves an invite to be claimed; what goes into `m.room.third_party_invite`. */
  store(
    invite: ThreepidInvite,
    room: { readonly roomId: string; readonly sender: string; readonly name: string | undefined },
  ): Promise<{
    readonly token: string;
    readonly displayName: string;
    readonly publicKeys: readonly { readonly public_key: string; readonly key_validity_url: string }[];
  }>;
}

/** Invites by email address or telephone number. The identity server client attaches with {@link ThreepidInvites.use}. */
@Injectable()
export class ThreepidInvites {
  #servers: IdentityServers | undefined;

  constructor(
    private readonly memberships: MembershipService,
    private readonly persister: EventPersister,
    private readonly state: RoomStateReader,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
  ) {}

  use(servers: IdentityServers): void {
    this.#servers = servers;
  }

  /**
   * Invites the user behind an address, or leaves an invite for whoever will be.
   * @throws MatrixError 403 `M_FORBIDDEN`, 429 `M_LIMIT_EXCEEDED`, 400 `M_UNKNOWN` when no identity server can be asked
   * @spec client-server-api#third-party-invites
   */
  async invite(requester: Requester, roomId: string, invite: ThreepidInvite): Promise<void> {
    await this.limiter.take('rc_third_party_invite', requester.userId, requester);
    if (this.config.get('block_non_admin_invites') && !requester.isAdmin) {
      throw MatrixError.forbidden('Invites have been disabled on this server');
    }
    const context = callbackContext(requester);
    const { medium, address } = invite;
    if (this.modules.has('checkThreepidCanBeInvited')) {
      const view = toStateView({
        get: async (type, stateKey) => (await this.state.currentEvent(roomId, type, stateKey))?.event,
        ofType: async (type) => (await this.state.current(roomId, { types: [[type]] })).map(({ event }) => event),
        all: async () => (await this.state.current(roomId)).map(({ event }) => event),
      });
      assertAllowed(await this.modules.gate('checkThreepidCanBeInvited', context, medium, address, view));
    }
    const servers = this.#servers;
    if (!servers) throw new MatrixError(400, 'M_UNKNOWN', 'This server cannot ask identity servers');
    const userId = await servers.lookUp(invite);
    if (userId !== undefined) return this.memberships.invite(requester, roomId, userId);
    if (this.modules.has('userMaySend3pidInvite')) {
      const { userId: inviter } = requester;
      assertAllowed(await this.modules.gate('userMaySend3pidInvite', context, inviter, medium, address, roomId));
    }
    const name = (await this.state.currentEvent(roomId, 'm.room.name'))?.event.content['name'];
    const stored = await servers.store(invite, {
      roomId,
      sender: requester.userId,
      name: typeof name === 'string' ? name : undefined,
    });
    const [first] = stored.publicKeys;
    await this.persister.send({
      roomId,
      type: 'm.room.third_party_invite',
      stateKey: stored.token,
      sender: requester.userId,
      content: {
        display_name: stored.displayName,
        public_keys: stored.publicKeys,
        key_validity_url: first?.key_validity_url ?? '',
        public_key: first?.public_key ?? '',
      },
      origin: originOf(requester),
    });
  }
}
