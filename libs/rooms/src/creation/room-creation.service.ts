import { Injectable } from '@nestjs/common';
import { roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { domainOf, isValidRoomAlias, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, eachLimit, Ids, type Requester } from '@rookery/platform';
import { InvitePolicy } from '../membership/invite-policy.js';
import { MemberProfiles } from '../membership/member-profiles.js';
import type { ThreepidInvite } from '../membership/identity-servers.js';
import { MembershipService } from '../membership/membership.service.js';
import { ThreepidInvites } from '../membership/threepid-invites.js';
import { AuthRefusal } from '../pipeline/draft-builder.js';
import { EventPersister } from '../pipeline/event-persister.js';
import type { EventDraft, NewRoom, Unchecked } from '../model/drafts.js';
import { aliasesIn, checkContent } from '../model/content-rules.js';
import { isRefusal } from '../model/refusals.js';
import { originOf } from '../model/requesters.js';
import { checkCreateRoom, type CreateRoomRequest, inviteReasonKey, inviteReasonsKey } from './create-room.schema.js';
import { RoomAdmission } from './room-admission.js';
import { additionalCreators, initialPowerLevels, objectIn, type Preset, presets } from './presets.js';

/** A room that was made. */
export interface CreatedRoom {
  readonly roomId: string;
  readonly alias: string | undefined;
  /** Users and addresses that were to be invited, but whose server could not be asked; and why. */
  readonly notInvited: ReadonlyMap<string, MatrixError>;
}

/** Events that an upgrade wants in place of a preset's. */
export interface CreationOverrides {
  /** No preset: only what `initial_state` says. Whether the requester may make rooms was checked, and the limit taken. */
  readonly bare?: boolean;
  /** No rate limit, no spam checks, not for its events either: the server, or a module, makes the room on its own account. */
  readonly unchecked?: Unchecked;
  /** Written together with the room. */
  readonly inTransaction?: NewRoom['inTransaction'];
}

type Draft = Omit<EventDraft, 'roomId' | 'transaction'>;

const maxInvites = 500;
const maxThreepidInvites = 20;
const maxInitialState = 1000;
/** Servers that are shown invites at once. After this much time no further invite is begun: somebody waits; milliseconds. */
const parallelServers = 8;
const invitePatienceMs = 30_000;

/** Makes rooms. */
@Injectable()
export class RoomCreation {
  // Nine parameters: one for each kind of first event and invite that a new room has.
  constructor(
    private readonly persister: EventPersister,
    private readonly profiles: MemberProfiles,
    private readonly policy: InvitePolicy,
    private readonly memberships: MembershipService,
    private readonly threepids: ThreepidInvites,
    private readonly admission: RoomAdmission,
    private readonly config: Config,
    private readonly ids: Ids,
    private readonly clock: Clock,
  ) {}

  /** What a client wants a room to be. @throws MatrixError 400 `M_BAD_JSON` where it has not the shape of that */
  requestFrom(body: JsonObject): CreateRoomRequest {
    return checkCreateRoom(body);
  }

  /**
   * Makes a room with all its first events and local invites in one transaction; invites to other servers and to addresses follow.
   * The room is there whatever comes of these: a server that refuses fails the request once all were asked, as clients show the reason;
   * one that cannot be asked does not.
   * @throws MatrixError 400 `M_ROOM_IN_USE`, `M_INVALID_ROOM_STATE`, `M_UNSUPPORTED_ROOM_VERSION`, `M_INVALID_PARAM`,
   *   `M_BAD_JSON`; 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN`, `M_USER_DEACTIVATED`; 429
   *   `M_LIMIT_EXCEEDED`
   */
  async create(requester: Requester, body: CreateRoomRequest, overrides: CreationOverrides = {}): Promise<CreatedRoom> {
    const { unchecked = false } = overrides;
    const request = unchecked === true ? body : await this.admission.admit(requester, body, overrides);
    const rules = this.#rulesFor(request.room_version);
    const { userId } = requester;
    const alias = this.#aliasFor(request.room_alias_name);
    const isPublic = request.visibility === 'public';
    const preset = presets[request.preset ?? (isPublic ? 'public_chat' : 'private_chat')];
    const invited = this.#invited(request.invite ?? [], userId);
    const isHere = (target: string): boolean => domainOf(target) === this.config.serverName;
    if (request.creation_content?.['m.federate'] === false && !invited.every(isHere)) {
      throw MatrixError.forbidden('The room is to be for users of this server only');
    }
    const threepids = threepidsIn(request);
    const dropped = new Set<string>();
    if (!unchecked) {
      if (alias !== undefined) await this.admission.checkAlias(requester, alias);
      await this.threepids.admit(requester, threepids);
      await this.admission.takeInvites(requester, invited.length + threepids.length);
      for (const target of invited) if (!(await this.policy.check(requester, target, undefined))) dropped.add(target);
    }
    const delivered = requester.shadowBanned ? [] : invited.filter((target) => !dropped.has(target));
    const roomId = rules.roomIdFormat === 'domain' ? `!${this.ids.letters(18)}:${this.config.serverName}` : undefined;
    // A room that may not be in the directory is a room all the same: whoever asks the directory itself is told.
    const isListed =
      isPublic && (unchecked !== false || (await this.admission.mayPublish(requester, roomId ?? '', alias)));
    const local = delivered.filter(isHere);
    const drafts = [
      ...(await this.#firstEvents(requester, request, rules, preset, invited)),
      ...this.#stateEvents(requester, request, preset, alias, overrides),
      ...(await this.#inviteEvents(requester, request, local)),
    ].map((draft) => (unchecked ? { ...draft, unchecked } : draft));
    const created = await this.#persist({
      ...{ roomVersion: rules.version, creator: userId, roomId, drafts, isPublic: isListed },
      ...(alias !== undefined && { aliases: [alias] }),
      inTransaction: overrides.inTransaction,
    });
    await this.memberships.leaveClosed(requester, created.roomId);
    const elsewhere = delivered.filter((target) => !isHere(target));
    const notInvited = new Map([
      ...(await this.#inviteElsewhere(requester, created.roomId, request, elsewhere, overrides)),
      ...(await this.#inviteAddresses(requester, created.roomId, request, threepids)),
    ]);
    for (const failure of notInvited.values()) if (isRefusal(failure)) throw failure;
    return { roomId: created.roomId, alias, notInvited };
  }

  /** Invites users of other servers, those of one server one after the other; whom that did not work for. */
  async #inviteElsewhere(
    requester: Requester,
    roomId: string,
    request: CreateRoomRequest,
    targets: readonly string[],
    { unchecked }: CreationOverrides,
  ): Promise<Map<string, MatrixError>> {
    const failures = new Map<string, MatrixError>();
    const untilMs = this.clock.monotonicMs() + invitePatienceMs;
    const servers = Map.groupBy(targets, domainOf).values();
    const invite = async (target: string): Promise<void> => {
      if (this.clock.monotonicMs() >= untilMs) throw MatrixError.gatewayTimeout('There was no time left');
      await this.memberships.invite(requester, roomId, target, {
        unchecked,
        duringRoomCreation: true,
        ...(request.is_direct && { content: { is_direct: true } }),
        reason: this.#reasonFor(request, target),
      });
    };
    await eachLimit(servers, parallelServers, async (ofServer) => {
      for (const target of ofServer) {
        try {
          await invite(target);
        } catch (error) {
          if (!MatrixError.is(error)) throw error;
          failures.set(target, error);
        }
      }
    });
    return failures;
  }

  /** Invites addresses, one after the other; those for which that did not work. */
  async #inviteAddresses(
    requester: Requester,
    roomId: string,
    request: CreateRoomRequest,
    invites: readonly ThreepidInvite[],
  ): Promise<Map<string, MatrixError>> {
    const failures = new Map<string, MatrixError>();
    const content = request.is_direct ? { is_direct: true } : undefined;
    for (const invite of invites) {
      try {
        await this.threepids.invite(requester, roomId, invite, { content, duringRoomCreation: true });
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
        failures.set(invite.address, error);
      }
    }
    return failures;
  }

  #rulesFor(version: string | undefined): RoomVersionRules {
    const rules = roomVersionRules(version ?? this.config.get('default_room_version'));
    if (rules) return rules;
    throw MatrixError.unsupportedRoomVersion();
  }

  #aliasFor(name: string | undefined): string | undefined {
    if (name === undefined) return undefined;
    const alias = `#${name}:${this.config.serverName}`;
    if (/[\s:#\0]/.test(name) || !isValidRoomAlias(alias)) throw MatrixError.invalidParam('The alias is not valid');
    return alias;
  }

  #invited(targets: readonly string[], creator: string): string[] {
    if (targets.length > maxInvites)
      throw MatrixError.invalidParam(`At most ${maxInvites} users can be invited at once`);
    for (const target of targets) {
      if (!isValidUserId(target)) throw MatrixError.invalidParam(`${target.slice(0, 100)} is not a user id`);
    }
    return [...new Set(targets)].filter((target) => target !== creator);
  }

  /** Create event, the creator's join, power levels. */
  async #firstEvents(
    requester: Requester,
    request: CreateRoomRequest,
    rules: RoomVersionRules,
    preset: Preset,
    invited: readonly string[],
  ): Promise<Draft[]> {
    const { userId } = requester;
    const content: JsonObject = { ...request.creation_content };
    content['room_version'] = rules.version;
    if (rules.creatorIsSender) delete content['creator'];
    else content['creator'] = userId;
    if (rules.privilegedCreators) {
      const creators = [...additionalCreators(content), ...(preset.equals ? invited : [])];
      const others = [...new Set(creators)].filter((creator) => creator !== userId);
      if (others.length > 0 || content['additional_creators'] !== undefined) content['additional_creators'] = others;
    }
    const given = request.initial_state?.findLast(
      (entry) => entry.type === 'm.room.power_levels' && (entry.state_key ?? '') === '',
    );
    const defaults = this.config.get('default_power_level_content_override') as
      Readonly<Record<string, unknown>> | undefined;
    const override = {
      ...objectIn(defaults?.[request.preset ?? (request.visibility === 'public' ? 'public_chat' : 'private_chat')]),
      ...request.power_level_content_override,
    };
    const levels = given
      ? { ...given.content, ...request.power_level_content_override }
      : initialPowerLevels(rules, preset, userId, invited, override);
    return [
      this.#state(requester, 'm.room.create', '', content),
      this.#state(requester, 'm.room.member', userId, { ...(await this.profiles.of(userId)), membership: 'join' }),
      this.#state(requester, 'm.room.power_levels', '', levels),
    ];
  }

  #stateEvents(
    requester: Requester,
    request: CreateRoomRequest,
    preset: Preset,
    alias: string | undefined,
    overrides: CreationOverrides,
  ): Draft[] {
    const given = request.initial_state ?? [];
    // A space may have more children than a client can ask for at once: an upgrade takes along what there is.
    if (!overrides.bare && given.length > maxInitialState)
      throw MatrixError.invalidParam('initial_state has too many entries');
    const drafts = new Map<string, Draft>();
    const set = (type: string, stateKey: string, content: Readonly<JsonObject>): void => {
      drafts.set(JSON.stringify([type, stateKey]), this.#state(requester, type, stateKey, content));
    };
    if (alias !== undefined) set('m.room.canonical_alias', '', { alias });
    if (!overrides.bare) {
      set('m.room.join_rules', '', { join_rule: preset.joinRule });
      set('m.room.history_visibility', '', { history_visibility: preset.historyVisibility });
      // Without the event guests are kept out.
      if (preset.guestAccess === 'can_join') set('m.room.guest_access', '', { guest_access: preset.guestAccess });
      if (this.#isEncryptedByDefault(preset)) set('m.room.encryption', '', { algorithm: 'm.megolm.v1.aes-sha2' });
    }
    for (const { type, state_key: stateKey = '', content } of given) {
      if (type === 'm.room.power_levels' && stateKey === '') continue;
      if (type === 'm.room.create' || (type === 'm.room.member' && !overrides.bare)) {
        throw MatrixError.invalidRoomState(`initial_state cannot hold ${type}`);
      }
      if (!overrides.unchecked) checkContent(type, stateKey, content, this.config.serverName);
      // No alias can lead to the room before it is there, but the one that is made with it.
      const misled =
        type === 'm.room.canonical_alias' && !overrides.unchecked && aliasesIn(content).find((one) => one !== alias);
      if (misled) throw MatrixError.badAlias(`The alias ${misled} does not lead to this room`);
      set(type, stateKey, content);
    }
    if (request.name !== undefined) set('m.room.name', '', { name: request.name });
    if (request.topic !== undefined) {
      set('m.room.topic', '', { topic: request.topic, 'm.topic': { 'm.text': [{ body: request.topic }] } });
    }
    return [...drafts.values()];
  }

  #isEncryptedByDefault(preset: Preset): boolean {
    const setting = this.config.get('encryption_enabled_by_default_for_room_type');
    return setting === 'all' || (setting === 'invite' && preset.joinRule === 'invite');
  }

  async #inviteEvents(requester: Requester, request: CreateRoomRequest, targets: readonly string[]): Promise<Draft[]> {
    const profiles = await this.profiles.ofInvitedMany(targets);
    return targets.map((target) =>
      this.#state(requester, 'm.room.member', target, {
        ...profiles.get(target),
        membership: 'invite',
        ...(request.is_direct && { is_direct: true }),
        ...reasonIn(this.#reasonFor(request, target)),
      }),
    );
  }

  /** MSC4491 */
  #reasonFor(request: CreateRoomRequest, target: string): string | undefined {
    if (!this.config.get('experimental_features.msc4491_enabled')) return undefined;
    const { [inviteReasonsKey]: reasons = {}, [inviteReasonKey]: reason } = request;
    return Object.hasOwn(reasons, target) ? reasons[target] : reason;
  }

  #state(requester: Requester, type: string, stateKey: string, content: Readonly<JsonObject>): Draft {
    return { type, stateKey, sender: requester.userId, content, origin: originOf(requester, true) };
  }

  async #persist(room: NewRoom): Promise<{ roomId: string }> {
    try {
      return await this.persister.createRoom(room);
    } catch (error) {
      if (error instanceof AuthRefusal) throw MatrixError.invalidRoomState(error.message);
      throw error;
    }
  }
}

const reasonIn = (reason: string | undefined): { readonly reason?: string } => (reason === undefined ? {} : { reason });

function threepidsIn({ invite_3pid: given = [] }: CreateRoomRequest): ThreepidInvite[] {
  if (given.length > maxThreepidInvites) {
    throw MatrixError.invalidParam(`At most ${maxThreepidInvites} addresses can be invited at once`);
  }
  return given.map(({ medium, address, id_server: idServer, id_access_token: idAccessToken }) => ({
    medium,
    address,
    idServer,
    idAccessToken,
  }));
}
