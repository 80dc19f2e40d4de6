import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Port } from '@rookery/platform';

/** Keys of another server's users, by user and device. */
export interface RemoteDeviceKeys {
  readonly device_keys: Readonly<Record<string, Readonly<Record<string, JsonObject>>>>;
  readonly master_keys?: Readonly<Record<string, JsonObject>>;
  readonly self_signing_keys?: Readonly<Record<string, JsonObject>>;
}

/** What is kept here of users of other servers. */
export interface KnownRemoteKeys extends RemoteDeviceKeys {
  /** Whose devices are kept, whether there was room for them or not. */
  readonly userIds: ReadonlySet<string>;
  /** Those for whose keys there was no room. */
  readonly leftOut: readonly string[];
}

/** What a server says of its users. */
export interface RemoteKeysAnswer extends RemoteDeviceKeys {
  /** Why keys of some of them are missing. */
  readonly failure?: unknown;
}

/** Claimed keys by user, device, and `algorithm:key_id`. */
export type ClaimedKeys = Readonly<Record<string, Readonly<Record<string, JsonObject>>>>;

/** Room in memory for keys of other servers, in one request. */
export interface KeyRoom {
  /** How much there is left, bytes of JSON. */
  readonly leftBytes: number;
  /** Takes some of it. @returns `false`, and nothing is taken, where there is not as much */
  take(bytes: number): boolean;
}

/** What is kept of other servers, and how they are asked. */
export interface RemoteKeySource {
  /**
   * What need not be asked for. Where there is no room for all, the users with the fewest keys come first.
   * @param devices device ids by user; an empty list for all
   */
  known(devices: Readonly<Record<string, readonly string[]>>, room: KeyRoom): Promise<KnownRemoteKeys>;
  /**
   * Asks a server; rejects when nothing comes of it. What it says of some is given also when the rest cannot be had in time, or there is
   * no room for it.
   * @param devices device ids by user; an empty list for all
   */
  query(
    serverName: string,
    devices: Readonly<Record<string, readonly string[]>>,
    timeoutMs: number,
    room: KeyRoom,
  ): Promise<RemoteKeysAnswer>;
  /** Rejects when the server cannot be reached. Keys for which there is no room are absent. @param wanted algorithms by user and device */
  claim(
    serverName: string,
    wanted: Readonly<Record<string, Readonly<Record<string, string>>>>,
    timeoutMs: number,
    room: KeyRoom,
  ): Promise<ClaimedKeys>;
}

/** Identity keys by user and device. */
export type ServiceDeviceKeys = Readonly<Record<string, Readonly<Record<string, JsonObject>>>>;

/** How application services are asked for keys of their own users. Neither rejects; who gives no answer is absent. */
export interface ServiceKeySource {
  /**
   * One-time keys for devices that have uploaded none (MSC3983).
   * @param wanted algorithms by user and device
   */
  claim?(wanted: Readonly<Record<string, Readonly<Record<string, string>>>>): Promise<ClaimedKeys>;
  /**
   * Identity keys, which win over those that were uploaded (MSC3984).
   * @param wanted device ids by user; an empty list for all
   */
  query?(wanted: ReadonlyMap<string, readonly string[]>): Promise<ServiceDeviceKeys>;
}

/** Positions that device lists depend on: their own stream, and memberships in `events`. */
export interface DeviceListPosition {
  readonly deviceLists: number;
  readonly events: number;
}

/** Reads a token of `/sync`. @throws MatrixError 400 `M_INVALID_PARAM` */
export type SyncTokenReader = (token: string) => DeviceListPosition;

/** What this lib needs of those above it. */
@Injectable()
export class E2eePorts {
  /** Without federation, every other server counts as unreachable. */
  readonly remoteKeys = new Port<RemoteKeySource>('remote_keys', 'required');
  /** Empty where no application service is asked. */
  readonly appserviceKeys = new Port<ServiceKeySource>('appservice_keys', 'optional');
  readonly syncPositions = new Port<SyncTokenReader>('sync_positions', 'required');
}
