import type { ModuleEvent, StateFilter } from '../event.js';
import type { ProfileInfo } from '../callbacks/third-party-rules.js';

/** The public room directory. */
export interface PublicRoomListManager {
  roomIsInPublicRoomList(roomId: string): Promise<boolean>;
  addRoomToPublicRoomList(roomId: string): Promise<void>;
  removeRoomFromPublicRoomList(roomId: string): Promise<void>;
}

/** An event to send. The sender has to be a local user; the server adds the rest. */
export interface EventToSend {
  readonly roomId: string;
  readonly type: string;
  readonly sender: string;
  readonly content: Readonly<Record<string, unknown>>;
  /** Makes it a state event. */
  readonly stateKey?: string;
}

/** A room that this server knows of. Figures are as old as its statistics: seconds. */
export interface RoomInfo {
  readonly roomId: string;
  readonly roomVersion: string;
  /** `m.space` for a space; `undefined` for a room without a type. */
  readonly roomType: string | undefined;
  readonly name: string | undefined;
  readonly canonicalAlias: string | undefined;
  readonly joinedMembers: number;
  readonly joinedLocalMembers: number;
  /** Whether it stands in the public directory. */
  readonly isPublic: boolean;
}

/**
 * Rooms. Everything done here passes the protocol's rules, and `checkEventAllowed` and `onCreateRoom` of the other modules, but not this
 * module's own, no spam check and no rate limit. `onNewEvent` tells of it as of any event.
 */
export interface RoomApi {
  /** `get_room_state`: the current state of a room, in no order, narrowed by types or pairs of type and state key. */
  getRoomState(roomId: string, eventFilter?: StateFilter): Promise<readonly ModuleEvent[]>;
  /** `get_state_events_in_room` */
  getStateEventsInRoom(roomId: string, types: StateFilter): Promise<readonly ModuleEvent[]>;
  /** `create_and_send_event_into_room` @throws MatrixError 403 when the room's rules, or another module, forbid it */
  createAndSendEventIntoRoom(event: EventToSend): Promise<ModuleEvent>;
  /**
   * `update_room_membership`: makes `target` join, leave, be invited, banned...
   * @param remoteRoomHosts servers to ask when this one is not in the room
   */
  updateRoomMembership(
    sender: string,
    target: string,
    roomId: string,
    newMembership: 'invite' | 'join' | 'leave' | 'ban' | 'knock',
    content?: Readonly<Record<string, unknown>>,
    remoteRoomHosts?: readonly string[],
  ): Promise<ModuleEvent>;
  /** `create_room`: `config` is the body of a request to create a room. @throws MatrixError 403 when another module forbids it */
  createRoom(
    userId: string,
    config: Readonly<Record<string, unknown>>,
    options?: { readonly ratelimit?: boolean; readonly creatorJoinProfile?: Partial<ProfileInfo> },
  ): Promise<{ readonly roomId: string; readonly roomAlias: string | undefined }>;
  /** `delete_room`: removes local users and everything stored, in the background. */
  deleteRoom(roomId: string): Promise<void>;
  /** Keeps local users from joining a room, or lets them again. Ours. */
  setRoomBlocked(roomId: string, blocked: boolean): Promise<void>;
  /** Withholds or gives back all media of a room. How many files it touched. Ours. */
  setRoomMediaQuarantined(roomId: string, quarantined: boolean): Promise<number>;
  /** Whether two users are joined to one and the same room that this server knows of. Ours. */
  usersShareRoom(userId: string, otherUserId: string): Promise<boolean>;
  /** All rooms that this server knows of, also those that nobody of it is in, in the order of their ids; read some at a time. Ours. */
  listRooms(): AsyncIterable<RoomInfo>;
  /** `get_canonical_room_alias` */
  getCanonicalRoomAlias(roomId: string): Promise<string | undefined>;
  /** `lookup_room_alias`: asks the alias's server where it is not ours. @throws MatrixError 404 */
  lookupRoomAlias(alias: string): Promise<{ readonly roomId: string; readonly servers: readonly string[] }>;
  /** `public_room_list_manager` */
  readonly publicRoomListManager: PublicRoomListManager;
}
