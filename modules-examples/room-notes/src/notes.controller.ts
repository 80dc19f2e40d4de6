import { Body, Controller, Get, HttpCode, Param, ParseIntPipe, Post, Put } from '@nestjs/common';
import type { ModuleRequester } from '@rookery/module-api';
import { ForUsers, Requester } from '@rookery/nest';
import { IsString, Matches, MaxLength, MinLength } from 'class-validator';
import type { Note } from './note.entity.js';
import { NotesService } from './notes.service.js';

/** Body of a new note. */
class NewNote {
  @IsString()
  @MinLength(1)
  @MaxLength(4000)
  // PostgreSQL keeps no NUL in texts.
  @Matches(/^[^\0]*$/)
  text!: string;
}

const wire = ({ id, userId, text, pinned, createdTs }: Note): object => ({
  ...{ id, user_id: userId, text, pinned, created_ts: createdTs },
});

/** Below `/_synapse/client/notes`. */
@Controller(':roomId')
@ForUsers()
export class NotesController {
  constructor(private readonly notes: NotesService) {}

  @Get()
  async list(@Param('roomId') roomId: string, @Requester() { userId }: ModuleRequester): Promise<object> {
    return { notes: (await this.notes.list(roomId, userId)).map(wire) };
  }

  @Post()
  @HttpCode(200)
  async write(
    @Param('roomId') roomId: string,
    @Requester() { userId }: ModuleRequester,
    @Body() { text }: NewNote,
  ): Promise<object> {
    return wire(await this.notes.write(roomId, userId, text));
  }

  @Put(':id/pin')
  async pin(
    @Param('roomId') roomId: string,
    @Param('id', ParseIntPipe) id: number,
    @Requester() { userId }: ModuleRequester,
  ): Promise<object> {
    return wire(await this.notes.pin(roomId, userId, id));
  }
}
