import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { Access, client, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { isValidRoomId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { AccountDataService } from '../account-data/account-data.service.js';
import { FilterStore } from '../account-data/filter-store.js';

/** Largest account data of one type, however it is written; bytes. */
const bodyLimitBytes = 2_097_152;
/** Most values and keys of account data. */
const maxValues = 50_000;

const dataBody = json.described('The account data; its type says what is in it.', json.anyObject());
const filter = json.anyObject();
const filterBody = json.object({
  event_fields: json.optional('Which fields of events are sent; all unless given.', json.array(json.unknown())),
  event_format: json.optional('The format of events: `client` (unless given) or `federation`.', json.string()),
  presence: json.optional('Which presence is sent.', filter),
  account_data: json.optional('Which account data that belongs to no room is sent.', filter),
  room: json.optional('Which rooms are sent, and what of them.', filter),
  'org.matrix.msc4429.profile_fields': json.optional(
    'Of which fields of profiles changes are sent (MSC4429).',
    json.unknown(),
  ),
});
const putTagBody = json.object({
  order: json.optional('Where the room stands among those with the tag, from 0 to 1.', json.number()),
});

@Controller()
export class AccountDataController {
  constructor(
    private readonly accountData: AccountDataService,
    private readonly filters: FilterStore,
    private readonly config: Config,
  ) {}

  /** PUT /_matrix/client/v3/user/{userId}/account_data/{type} */
  @Put(stable('/user/:userId/account_data/:type'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  async put(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('type') type: string,
    @JsonBody(dataBody, { maxValues }) body: Infer<typeof dataBody>,
  ): Promise<object> {
    await this.accountData.setByClient(own(requester, userId), undefined, type, body, { requester });
    return {};
  }

  /** GET /_matrix/client/v3/user/{userId}/account_data/{type} */
  @Get(stable('/user/:userId/account_data/:type'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  get(@Who() requester: Requester, @Param('userId') userId: string, @Param('type') type: string): Promise<JsonObject> {
    return this.#get(own(requester, userId), undefined, type);
  }

  /** PUT /_matrix/client/v3/user/{userId}/rooms/{roomId}/account_data/{type} */
  @Put(stable('/user/:userId/rooms/:roomId/account_data/:type'))
  @Access({ auth: 'required', guests: true, bodyLimitBytes, anyProcess: true })
  async putForRoom(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
    @Param('type') type: string,
    @JsonBody(dataBody, { maxValues }) body: Infer<typeof dataBody>,
  ): Promise<object> {
    await this.accountData.setByClient(own(requester, userId), room(roomId), type, body, { requester });
    return {};
  }

  /** GET /_matrix/client/v3/user/{userId}/rooms/{roomId}/account_data/{type} */
  @Get(stable('/user/:userId/rooms/:roomId/account_data/:type'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  getForRoom(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
    @Param('type') type: string,
  ): Promise<JsonObject> {
    return this.#get(own(requester, userId), room(roomId), type);
  }

  /** DELETE /_matrix/client/unstable/org.matrix.msc3391/user/{userId}/account_data/{type} */
  @Delete(client(['unstable'], '/org.matrix.msc3391/user/:userId/account_data/:type'))
  @Access({ auth: 'required', anyProcess: true })
  delete(@Who() requester: Requester, @Param('userId') userId: string, @Param('type') type: string): Promise<object> {
    return this.#delete(requester, own(requester, userId), undefined, type);
  }

  /** DELETE /_matrix/client/unstable/org.matrix.msc3391/user/{userId}/rooms/{roomId}/account_data/{type} */
  @Delete(client(['unstable'], '/org.matrix.msc3391/user/:userId/rooms/:roomId/account_data/:type'))
  @Access({ auth: 'required', anyProcess: true })
  deleteForRoom(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
    @Param('type') type: string,
  ): Promise<object> {
    return this.#delete(requester, own(requester, userId), room(roomId), type);
  }

  /** GET /_matrix/client/v3/user/{userId}/rooms/{roomId}/tags */
  @Get(stable('/user/:userId/rooms/:roomId/tags'))
  @Access({ auth: 'required', anyProcess: true })
  async tags(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return { tags: await this.accountData.tags(own(requester, userId), room(roomId)) };
  }

  /** PUT /_matrix/client/v3/user/{userId}/rooms/{roomId}/tags/{tag} */
  @Put(stable('/user/:userId/rooms/:roomId/tags/:tag'))
  @Access({ auth: 'required', anyProcess: true })
  async putTag(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
    @Param('tag') tag: string,
    @JsonBody(putTagBody) body: Infer<typeof putTagBody>,
  ): Promise<object> {
    await this.accountData.setTag(own(requester, userId), room(roomId), tag, body, { requester });
    return {};
  }

  /** DELETE /_matrix/client/v3/user/{userId}/rooms/{roomId}/tags/{tag} */
  @Delete(stable('/user/:userId/rooms/:roomId/tags/:tag'))
  @Access({ auth: 'required', anyProcess: true })
  async deleteTag(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('roomId') roomId: string,
    @Param('tag') tag: string,
  ): Promise<object> {
    await this.accountData.setTag(own(requester, userId), room(roomId), tag, undefined, { requester });
    return {};
  }

  /** POST /_matrix/client/v3/user/{userId}/filter */
  @Post(stable('/user/:userId/filter'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async createFilter(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @JsonBody(filterBody, { maxValues }) body: Infer<typeof filterBody>,
  ): Promise<object> {
    return { filter_id: await this.filters.create(own(requester, userId), body) };
  }

  /** GET /_matrix/client/v3/user/{userId}/filter/{filterId} */
  @Get(stable('/user/:userId/filter/:filterId'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  getFilter(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @Param('filterId') filterId: string,
  ): Promise<JsonObject> {
    return this.filters.get(own(requester, userId), filterId);
  }

  async #get(userId: string, roomId: string | undefined, type: string): Promise<JsonObject> {
    const content = await this.accountData.find(userId, roomId, type);
    const deleted =
      content !== undefined &&
      Object.keys(content).length === 0 &&
      this.config.get('experimental_features.msc3391_enabled');
    if (content === undefined || deleted) throw MatrixError.notFound('There is no such account data');
    return content;
  }

  /** MSC3391 */
  async #delete(requester: Requester, userId: string, roomId: string | undefined, type: string): Promise<object> {
    if (!this.config.get('experimental_features.msc3391_enabled')) throw MatrixError.unrecognized();
    await this.accountData.setByClient(userId, roomId, type, {}, { requester });
    return {};
  }
}

function own(requester: Requester, userId: string): string {
  if (userId !== requester.userId) throw MatrixError.forbidden('This is not your account');
  return userId;
}

function room(roomId: string): string {
  if (!isValidRoomId(roomId)) throw MatrixError.notRoomId();
  return roomId;
}
