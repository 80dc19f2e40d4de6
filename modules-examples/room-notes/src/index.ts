import { Module } from '@nestjs/common';
import { MatrixApi, nestModule } from '@rookery/nest';
import { moduleDataSource } from '@rookery/typeorm';
import { DataSource } from 'typeorm';
import { migrations } from './migrations.js';
import { Note } from './note.entity.js';
import { NotesController } from './notes.controller.js';
import { NotesService } from './notes.service.js';

@Module({
  controllers: [NotesController],
  providers: [
    NotesService,
    {
      ...{ provide: DataSource, inject: [MatrixApi] },
      useFactory: (api: MatrixApi) => moduleDataSource(api, { entities: [Note], migrations }),
    },
  ],
})
class NotesModule {}

/** Notes on rooms. */
const module = nestModule({ name: 'room-notes', module: NotesModule, webResource: '/_synapse/client/notes' });
export { module as default };
