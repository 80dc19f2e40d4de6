import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/module-api';
import { MatrixApi } from '@rookery/nest';
import { DataSource, type Repository } from 'typeorm';
import { Note } from './note.entity.js';

const maxPinned = 3;
/** The column of ids has 32 bits, and PostgreSQL fails for a number that does not fit. */
const maxId = 2 ** 31 - 1;

/** Notes on rooms, for those who are in them. */
@Injectable()
export class NotesService {
  readonly #notes: Repository<Note>;

  constructor(
    private readonly source: DataSource,
    private readonly api: MatrixApi,
  ) {
    this.#notes = source.getRepository(Note);
  }

  /** The notes on a room, those that are pinned first, then the newest. */
  async list(roomId: string, userId: string): Promise<Note[]> {
    await this.#assertJoined(roomId, userId);
    return this.#notes.find({ where: { roomId }, order: { pinned: 'DESC', createdTs: 'DESC', id: 'DESC' }, take: 100 });
  }

  async write(roomId: string, userId: string, text: string): Promise<Note> {
    await this.#assertJoined(roomId, userId);
    const createdTs = this.api.getCurrentTimeMsec();
    return this.#notes.save(this.#notes.create({ roomId, userId, text, createdTs, pinned: false }));
  }

  /** Pins a note. @throws MatrixError 404 for no note of the room, 400 when there are three already */
  async pin(roomId: string, userId: string, id: number): Promise<Note> {
    await this.#assertJoined(roomId, userId);
    return this.source.transaction(async (manager) => {
      const notes = manager.getRepository(Note);
      const note = Math.abs(id) > maxId ? null : await notes.findOneBy({ id, roomId });
      if (!note) throw new MatrixError(404, 'M_NOT_FOUND', 'There is no such note');
      const saved = await notes.save({ ...note, pinned: true });
      // What was saved comes to nothing with the transaction.
      if ((await notes.countBy({ roomId, pinned: true })) > maxPinned)
        throw new MatrixError(400, 'M_LIMIT_EXCEEDED', `There are ${maxPinned} pinned notes already`);
      return saved;
    });
  }

  async #assertJoined(roomId: string, userId: string): Promise<void> {
    const [member] = await this.api.getRoomState(roomId, [['m.room.member', userId]]);
    if (member?.content['membership'] !== 'join') throw new MatrixError(403, 'M_FORBIDDEN', 'You are not in the room');
  }
}
