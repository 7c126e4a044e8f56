"""TODO_DOC"""
