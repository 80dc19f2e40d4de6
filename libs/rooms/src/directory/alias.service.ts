import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { fitsBytes, isValidRoomId, type JsonObject, MatrixError, parseRoomAlias } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import type { ResolvedAlias } from '../ports.js';
import { RemoteRooms } from '../remote-rooms.js';
import { isLocalMember } from '../reading/local-members.query.js';
import { aliasesIn } from '../model/content-rules.js';
import { RoomServers } from '../servers/room-servers.js';
import { AliasClaims } from './alias-claims.js';
import { deleteAlias, insertAlias, selectAlias, selectAliasesOf } from './alias.query.js';
import { CanonicalAliases } from './canonical-aliases.js';
import { PublicationRules } from './publication-rules.js';

/** Aliases that one event may add; each is looked up, maybe on another server. */
const maxAdded = 100;

/** Names of rooms on this server, and where names of other servers lead. */
@Injectable()
export class AliasService {
  // Nine parameters: an alias is claimed, ruled upon, published and withdrawn: each asks another.
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly rules: PublicationRules,
    private readonly claims: AliasClaims,
    private readonly canonical: CanonicalAliases,
    private readonly servers: RoomServers,
    private readonly remote: RemoteRooms,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
  ) {}

  /** The server of an alias. @throws MatrixError 400 `M_INVALID_PARAM` */
  serverOf(alias: string): string {
    const parsed = fitsBytes(alias, 255) ? parseRoomAlias(alias) : undefined;
    if (!parsed) throw MatrixError.invalidParam('This is not a room alias');
    return parsed.serverName;
  }

  /** Whether another server must be asked about an alias. @throws MatrixError 400 `M_INVALID_PARAM` */
  isElsewhere(alias: string): boolean {
    return this.serverOf(alias) !== this.config.serverName;
  }

  /** The room behind an alias; `undefined` when nobody knows one. @throws MatrixError 400 `M_INVALID_PARAM` */
  async resolve(alias: string): Promise<ResolvedAlias | undefined> {
    if (this.isElsewhere(alias)) return this.remote.gateway?.directory.resolveAlias(alias);
    let row = await selectAlias(this.database, alias);
    if (!row && (await this.claims.ask(alias))) row = await selectAlias(this.database, alias);
    if (!row) return undefined;
    const hosts = await this.servers.of(row.room_id);
    const { serverName } = this.config;
    return { roomId: row.room_id, servers: [serverName, ...[...hosts].filter((host) => host !== serverName)] };
  }

  /**
   * Resolves what a client may give for a room: its id, or an alias.
   * @throws MatrixError 404 `M_NOT_FOUND`, 400 `M_INVALID_PARAM`
   */
  async resolveRoom(idOrAlias: string, via: readonly string[] = []): Promise<ResolvedAlias> {
    if (idOrAlias.startsWith('!')) return { roomId: idOrAlias, servers: via };
    const resolved = await this.resolve(idOrAlias);
    if (!resolved) throw MatrixError.noSuchAlias();
    return { roomId: resolved.roomId, servers: [...via, ...resolved.servers] };
  }

  /**
   * @throws MatrixError 409 `M_UNKNOWN` when the alias exists, 403 `M_FORBIDDEN` or `M_EXCLUSIVE`, 400 `M_INVALID_PARAM`, for a
   *   room that is not known here as well
   */
  async create(requester: Requester, alias: string, roomId: string): Promise<void> {
    if (this.serverOf(alias) !== this.config.serverName) {
      throw MatrixError.invalidParam('Aliases can be made on this server only');
    }
    if (!isValidRoomId(roomId)) throw MatrixError.invalidParam('room_id is not a room id');
    await this.limiter.take('rc_message', requester.userId, requester);
    this.#checkReserved(requester, alias);
    if (requester.appserviceId === undefined) {
      const mustBeIn = !requester.isAdmin && this.config.get('require_membership_for_aliases');
      if (mustBeIn && !(await isLocalMember(this.database, requester.userId, roomId))) throw MatrixError.notInRoom();
      if (!requester.isAdmin && !this.rules.mayMakeAlias(requester.userId, roomId, alias)) {
        throw MatrixError.forbidden('You may not make this alias');
      }
      if (this.modules.has('userMayCreateRoomAlias')) {
        const context = callbackContext(requester);
        assertAllowed(await this.modules.gate('userMayCreateRoomAlias', context, requester.userId, alias));
      }
    }
    const { userId } = requester;
    const outcome = await this.database.write((tx) => insertAlias(tx, alias, roomId, userId), { name: 'create_alias' });
    if (outcome === 'no room') throw MatrixError.invalidParam('This server does not know the room');
    if (outcome === 'taken') throw MatrixError.conflict(`The alias ${alias} exists already`);
  }

  /** @throws MatrixError 404 `M_NOT_FOUND`, 403 `M_FORBIDDEN` or `M_EXCLUSIVE` */
  async delete(requester: Requester, alias: string): Promise<void> {
    const row = this.serverOf(alias) === this.config.serverName ? await selectAlias(this.database, alias) : undefined;
    if (!row) throw MatrixError.noSuchAlias();
    this.#checkReserved(requester, alias);
    const mayDelete =
      requester.isAdmin ||
      requester.appserviceId !== undefined ||
      row.creator === requester.userId ||
      (await this.canonical.mayChange(requester.userId, row.room_id));
    if (!mayDelete) throw MatrixError.forbidden('You may not delete this alias');
    await this.database.write((tx) => deleteAlias(tx, alias), { name: 'delete_alias' });
    await this.canonical.withdraw(requester, row.room_id, alias);
  }

  /** The local aliases of a room, in order. */
  aliasesOf(roomId: string): Promise<string[]> {
    return selectAliasesOf(this.database, roomId);
  }

  /**
   * Checks the aliases that a canonical alias event adds. Other servers are asked only for who may send it.
   * @throws MatrixError 403 `M_FORBIDDEN`, 429; 400 `M_BAD_ALIAS` when one leads elsewhere or nowhere, 400 `M_BAD_JSON` for too many
   * @spec client-server-api#put_matrixclientv3roomsroomidstateeventtypestatekey
   */
  async checkCanonical(requester: Requester, roomId: string, content: Readonly<JsonObject>): Promise<void> {
    if (!(await this.canonical.mayChange(requester.userId, roomId)))
      throw MatrixError.forbidden('You may not change the aliases of this room');
    const known = new Set(await this.canonical.aliasesIn(roomId));
    const added = new Set(aliasesIn(content).filter((alias) => !known.has(alias)));
    if (added.size > maxAdded) throw MatrixError.badJson(`Not more than ${maxAdded} aliases can be added at once`);
    for (const alias of added)
      if (!parseRoomAlias(alias)) throw MatrixError.invalidParam(`${alias.slice(0, 100)} is not a room alias`);
    if ([...added].some((alias) => this.isElsewhere(alias)))
      await this.limiter.take('rc_message', requester.userId, requester);
    for (const alias of added) {
      if ((await this.resolve(alias))?.roomId !== roomId) {
        throw MatrixError.badAlias(`The alias ${alias} does not lead to this room`);
      }
    }
  }

  #checkReserved(requester: Requester, alias: string): void {
    if (this.claims.isReserved(alias, requester.appserviceId)) {
      throw MatrixError.exclusive();
    }
  }
}
