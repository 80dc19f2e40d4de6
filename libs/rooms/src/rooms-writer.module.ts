import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { ProfilePropagation } from './membership/profile-propagation.js';
import { RoomsModule } from './rooms.module.js';

/** What only the process that writes a room's events does: background work. */
@Module({ imports: [UsersModule, RoomsModule], providers: [ProfilePropagation], exports: [ProfilePropagation] })
export class RoomsWriterModule {}
