import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { AccountDataSection } from './sections/account-data.js';
import { RoomsSection } from './sections/rooms.js';
import type { SyncContext } from './sync-context.js';

/** An answer without its token. */
export interface SyncResponse {
  readonly body: JsonObject;
  /** Nothing in it is news: the client would rather wait. */
  readonly isEmpty: boolean;
}

/** Puts the sections of an answer together, in a fixed order. */
@Injectable()
export class SyncResponses {
  constructor(
    private readonly rooms: RoomsSection,
    private readonly accountData: AccountDataSection,
  ) {}

  /** Everything between `since` and `now`. @spec client-server-api#get_matrixclientv3sync */
  async build(context: SyncContext): Promise<SyncResponse> {
    if (context.since === undefined) this.rooms.forgetDevice(context.deviceKey);
    const accountData = await this.accountData.changes(context);
    const rooms = await this.rooms.build(context, accountData);
    const body: JsonObject = {};
    if (accountData.global.length > 0) body['account_data'] = { events: accountData.global };
    if (Object.keys(rooms).length > 0) body['rooms'] = rooms;
    return { body, isEmpty: Object.keys(body).length === 0 };
  }
}
