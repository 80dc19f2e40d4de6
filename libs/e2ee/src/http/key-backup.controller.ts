import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import {
  Access,
  client,
  HttpReply,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { Readable } from 'node:stream';
import type { BackupVersion, SessionSelector } from '../key-backup/backup.query.js';
import { KeyBackupService, pageBytes } from '../key-backup/key-backup.service.js';
import {
  parseRooms,
  parseSession,
  parseSessions,
  roomsText,
  sessionsText,
  sessionText,
} from '../key-backup/session-rules.js';

const path = (rest: string): string[] => client(['v3', 'unstable'], `/room_keys${rest}`);

const versionSchema = json.object({
  algorithm: json.required('How the keys are encrypted.', json.string()),
  auth_data: json.required(
    'What belongs to the algorithm: the public key of the backup and signatures of it.',
    json.anyObject(),
  ),
  version: json.optional('The version that is changed, as in the path.', json.string()),
});

const session = {
  first_message_index: json.required('The first message that the key can decrypt.', json.integer()),
  forwarded_count: json.required('How often the key was forwarded.', json.integer()),
  is_verified: json.required('Whether the device that sent the key was verified.', json.boolean()),
  session_data: json.required('The key, encrypted as the algorithm of the backup wants it.', json.anyObject()),
};
const sessions = { sessions: json.required('The keys, by session.', json.record(json.object(session))) };
const sessionBody = json.object(session);
const sessionsBody = json.object(sessions);
const roomsBody = json.object({ rooms: json.required('The keys, by room.', json.record(json.object(sessions))) });

const versionQuery = queryOf({ version: param.string('The version of the backup.', { required: true }) });
type VersionQuery = InferQuery<typeof versionQuery>;

/** The sessions' data is stored as text and goes out as such. */
const textReply = (text: string): HttpReply => new HttpReply(200, { 'content-type': 'application/json' }, text);
/** What may be long is read from the database as the client takes it: a page is there with its text, and the one before may be on its way. */
const streamReply = (pieces: AsyncIterable<string>): HttpReply =>
  new HttpReply(
    200,
    { 'content-type': 'application/json' },
    Readable.from(pieces, { objectMode: false }),
    3 * pageBytes,
  );

/** Largest upload of many sessions, bytes. */
const bodyLimitBytes = 4_194_304;

@Controller()
export class KeyBackupController {
  constructor(private readonly backups: KeyBackupService) {}

  /** POST /_matrix/client/v3/room_keys/version */
  @Post(path('/version'))
  @Access({ auth: 'required', anyProcess: true })
  async create(
    @Who() requester: Requester,
    @JsonBody(versionSchema) body: Infer<typeof versionSchema>,
  ): Promise<object> {
    const { algorithm, auth_data: authData } = body as { algorithm: string; auth_data: JsonObject };
    return { version: await this.backups.create(requester.userId, algorithm, authData) };
  }

  /** GET /_matrix/client/v3/room_keys/version */
  @Get(path('/version'))
  @Access({ auth: 'required', anyProcess: true })
  async current(@Who() requester: Requester): Promise<object> {
    return toWire(await this.backups.find(requester.userId, undefined));
  }

  /** GET /_matrix/client/v3/room_keys/version/{version} */
  @Get(path('/version/:version'))
  @Access({ auth: 'required', anyProcess: true })
  async find(@Who() requester: Requester, @Param('version') version: string): Promise<object> {
    return toWire(await this.backups.find(requester.userId, version));
  }

  /** PUT /_matrix/client/v3/room_keys/version/{version} */
  @Put(path('/version/:version'))
  @Access({ auth: 'required', anyProcess: true })
  async update(
    @Who() requester: Requester,
    @Param('version') version: string,
    @JsonBody(versionSchema) body: Infer<typeof versionSchema>,
  ): Promise<object> {
    const { algorithm, auth_data: authData } = body as { algorithm: string; auth_data: JsonObject };
    if (body['version'] !== undefined && body['version'] !== version)
      throw MatrixError.invalidParam('The version in the body is another one than in the path');
    await this.backups.setAuthData(requester.userId, version, algorithm, authData);
    return {};
  }

  /** DELETE /_matrix/client/v3/room_keys/version/{version} */
  @Delete(path('/version/:version'))
  @Access({ auth: 'required', anyProcess: true })
  async delete(@Who() requester: Requester, @Param('version') version: string): Promise<object> {
    await this.backups.delete(requester.userId, version);
    return {};
  }

  /** PUT /_matrix/client/v3/room_keys/keys */
  @Put(path('/keys'))
  @Access({ auth: 'required', bodyLimitBytes, anyProcess: true })
  putAll(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @JsonBody(roomsBody) body: Infer<typeof roomsBody>,
  ): Promise<object> {
    return this.backups.store(requester.userId, version, parseRooms(body));
  }

  /** PUT /_matrix/client/v3/room_keys/keys/{roomId} */
  @Put(path('/keys/:roomId'))
  @Access({ auth: 'required', bodyLimitBytes, anyProcess: true })
  putRoom(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
    @JsonBody(sessionsBody) body: Infer<typeof sessionsBody>,
  ): Promise<object> {
    return this.backups.store(requester.userId, version, parseSessions(roomId, body));
  }

  /** PUT /_matrix/client/v3/room_keys/keys/{roomId}/{sessionId} */
  @Put(path('/keys/:roomId/:sessionId'))
  @Access({ auth: 'required', anyProcess: true })
  putSession(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
    @Param('sessionId') sessionId: string,
    @JsonBody(sessionBody) body: Infer<typeof sessionBody>,
  ): Promise<object> {
    return this.backups.store(requester.userId, version, [parseSession(roomId, sessionId, body)]);
  }

  /** GET /_matrix/client/v3/room_keys/keys */
  @Get(path('/keys'))
  @Access({ auth: 'required', largeAnswer: true, anyProcess: true })
  async getAll(@Who() requester: Requester, @Query(versionQuery) { version }: VersionQuery): Promise<HttpReply> {
    return streamReply(roomsText(await this.backups.pages(requester.userId, version)));
  }

  /** GET /_matrix/client/v3/room_keys/keys/{roomId} */
  @Get(path('/keys/:roomId'))
  @Access({ auth: 'required', largeAnswer: true, anyProcess: true })
  async getRoom(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
  ): Promise<HttpReply> {
    return streamReply(sessionsText(await this.backups.pages(requester.userId, version, clean(roomId))));
  }

  /** GET /_matrix/client/v3/room_keys/keys/{roomId}/{sessionId} */
  @Get(path('/keys/:roomId/:sessionId'))
  @Access({ auth: 'required', anyProcess: true })
  async getSession(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
    @Param('sessionId') sessionId: string,
  ): Promise<HttpReply> {
    const session = await this.backups.session(requester.userId, version, clean(roomId), clean(sessionId));
    if (session === undefined) throw MatrixError.notFound('The backup has no such key');
    return textReply(sessionText(session));
  }

  /** DELETE /_matrix/client/v3/room_keys/keys */
  @Delete(path('/keys'))
  @Access({ auth: 'required', anyProcess: true })
  deleteAll(@Who() requester: Requester, @Query(versionQuery) { version }: VersionQuery): Promise<object> {
    return this.#delete(requester, version, {});
  }

  /** DELETE /_matrix/client/v3/room_keys/keys/{roomId} */
  @Delete(path('/keys/:roomId'))
  @Access({ auth: 'required', anyProcess: true })
  deleteRoom(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    return this.#delete(requester, version, { roomId: clean(roomId) });
  }

  /** DELETE /_matrix/client/v3/room_keys/keys/{roomId}/{sessionId} */
  @Delete(path('/keys/:roomId/:sessionId'))
  @Access({ auth: 'required', anyProcess: true })
  deleteSession(
    @Who() requester: Requester,
    @Query(versionQuery) { version }: VersionQuery,
    @Param('roomId') roomId: string,
    @Param('sessionId') sessionId: string,
  ): Promise<object> {
    return this.#delete(requester, version, { roomId: clean(roomId), sessionId: clean(sessionId) });
  }

  #delete(requester: Requester, version: string, selector: SessionSelector): Promise<object> {
    return this.backups.deleteSessions(requester.userId, version, selector);
  }
}

/** What cannot be a name in the database. @throws MatrixError 400 `M_INVALID_PARAM` */
function clean(id: string): string {
  if (id.includes('\0') || !id.isWellFormed()) throw MatrixError.invalidParam('Not a valid room or session id');
  return id;
}

function toWire(backup: BackupVersion): object {
  return {
    version: String(backup.version),
    algorithm: backup.algorithm,
    auth_data: JSON.parse(backup.authData) as JsonObject,
    etag: String(backup.etag),
    count: backup.count,
  };
}
